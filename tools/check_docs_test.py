# SPDX-License-Identifier: Apache-2.0
"""Tests of check_docs: links, headings, and the commands that it finds and runs."""

from __future__ import annotations

import sys
from pathlib import Path

import check_docs
import dtype_table
import written_part

ROOT = Path(check_docs.__file__).resolve().parent.parent

PAGE = """# Two words

See [the other](other.md#a-heading), [here](#two-words), [out](https://example.org/x).

<!-- tested: 5 -->
```sh
echo one; echo two 2.5
```

```text
one
two ...
```

```sh
exit 7
```
"""


def complaints(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text, "utf-8")
    found = check_docs.check_page(page, text, tmp_path)
    return [complaint.partition(".md:")[2] for complaint in found]


def test_links_lead_somewhere(tmp_path):
    assert complaints(tmp_path, PAGE) == ["3: other.md is not there"]
    (tmp_path / "other.md").write_text("# Another\n", "utf-8")
    assert complaints(tmp_path, PAGE) == ["3: other.md has no heading #a-heading"]
    (tmp_path / "other.md").write_text("# Another\n## A `heading`\n", "utf-8")
    assert complaints(tmp_path, PAGE) == []
    assert len(complaints(tmp_path, "[a](#none)\n")) == 1
    assert complaints(tmp_path, "```c\na[i](j)\n```\nand `[x](y)`\n") == []


def test_named_files_are_there(tmp_path):
    text = "See `plan/ring.cc`, `x.cc`, `a/b` and `tools/<any>.py`.\n"
    assert complaints(tmp_path, text) == ["1: plan/ring.cc is not there"]
    (tmp_path / "src" / "plan").mkdir(parents=True)
    (tmp_path / "src" / "plan" / "ring.cc").write_text("", "utf-8")
    assert complaints(tmp_path, text) == []


def test_pages_are_not_empty(tmp_path):
    assert len(complaints(tmp_path, "\n")) == 1
    assert len(complaints(tmp_path, "# A\n\nTBD\n")) == 1


def test_commands_are_those_that_are_marked(tmp_path):
    (command,) = check_docs.commands(PAGE)
    assert (command.line, command.seconds) == (6, 5)
    assert command.expected == ["one", "two ..."]
    assert check_docs.run(command, tmp_path) is None


def test_commands_fail_aloud(tmp_path):
    (command,) = check_docs.commands(PAGE)
    command.expected = ["two ...", "one"]
    assert "did not print 'one'" in check_docs.run(command, tmp_path)
    command.script = "echo why; exit 7"
    assert check_docs.run(command, tmp_path) == "exit code 7\nwhy\n"


def test_commands_end(tmp_path):
    (command,) = check_docs.commands(PAGE)
    command.script, command.seconds = "echo begun; exec tail -f /dev/null", 1
    assert check_docs.run(command, tmp_path) == "has not ended after 1 s\nbegun\n"


def test_a_page_in_another_language_has_the_same_commands_and_tables() -> None:
    page = Path("PAGE.zh-CN.md")
    assert list(check_docs.check_translation(page, PAGE, PAGE)) == []
    table = "| a | b |\n|---|---|\n| 1 | 2 |\n"
    commented = "```sh\nmake all    # everything\n```\n"
    same = list(check_docs.check_translation(page, commented.replace("every", "any"), commented))
    assert same == []
    for text, original in (
        (commented, commented.replace("all", "demo")),
        (table, table + "| 3 | 4 |\n"),
        (table, table.replace("| 1 | 2 |", "| 1 |")),
        ("", commented),
    ):
        (complaint,) = check_docs.check_translation(page, text, original)
        assert complaint.startswith("PAGE.zh-CN.md:1: has")


def test_the_table_of_dtypes_is_the_librarys():
    page = ROOT / dtype_table.PART.page
    text = page.read_text("utf-8")
    assert list(dtype_table.PART.complaints(page, text, ROOT)) == []
    wrong = text.replace("| `bool` | 1 | yes | no |", "| `bool` | 1 | yes | yes |")
    assert wrong != text
    assert "not the library's table" in next(dtype_table.PART.complaints(page, wrong, ROOT))
    no_marks = text.replace(written_part.END, "")
    assert "lacks" in next(dtype_table.PART.complaints(page, no_marks, ROOT))


def test_a_table_that_cannot_be_compared(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ciuic", None)
    page = Path("docs/dtypes.md")
    assert list(dtype_table.PART.complaints(page, "no table", ROOT)) == []
    assert "not compared" in capsys.readouterr().err
