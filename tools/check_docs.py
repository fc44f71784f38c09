#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the documents: links lead to a file and a heading, named files are there, commands run.

``check_docs.py`` checks links, paths in `code`, tests named as `path::name`, that no page is empty,
that a page in another language (``X.zh-CN.md``) has the English one's commands and tables, that
docs/dtypes.md has the library's table, where the package is installed, and that docs/algorithms.md
has what stands over the algorithms.
With ``--run`` it also runs, in the root of the tree, every ``sh`` block that follows a line
``<!-- tested -->``, or ``<!-- tested: 120 -->`` for that many seconds. Where a ``text`` block comes
right after a tested one, each of its lines must appear in what was printed, in order, with ``...``
for any text.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import algorithm_list
import dtype_table

DEFAULT_SECONDS = 60
WRITTEN = (dtype_table.PART, algorithm_list.PART)

_FENCE = re.compile(r"^(`{3,})([\w+-]*)[^\n]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!\\)!?\[[^\]]*\]\(\s*<?([^()\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_NAMED_FILE = re.compile(r"`((?:[\w.-]+/)+[\w-]+\.(?:h|cc|py|pyi|sh|md|cmake|txt))`")
_NAMED_TEST = re.compile(r"`((?:[\w.-]+/)+[\w-]+\.(?:cc|py))::([\w./]+)`")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$", re.MULTILINE)
_TESTED = re.compile(r"<!--\s*tested(?::\s*(\d+))?\s*-->\s*\Z")
_EMPTY = re.compile(r"\b(?:TBD|TODO|coming soon)\b", re.IGNORECASE)


@dataclass
class Command:
    """A tested block: what runs, for how long at most, and what it must print."""

    line: int
    script: str
    seconds: int
    expected: list[str]


def _line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _without_blocks(text: str) -> str:
    """Blanks blocks of code; lines stay where they are."""
    return _FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def _prose(text: str) -> str:
    """Blanks all code, which may look like links."""
    blank = _without_blocks(text)
    return re.sub(r"`[^`\n]*`", lambda match: " " * len(match.group()), blank)


def anchors(text: str) -> set[str]:
    """The names by which a page's headings can be linked to, as GitHub makes them."""
    found: set[str] = set()
    for match in _HEADING.finditer(_without_blocks(text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match.group(1)).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number, unique = 0, anchor
        while unique in found:
            number += 1
            unique = f"{anchor}-{number}"
        found.add(unique)
    return found


def check_page(page: Path, text: str, root: Path) -> Iterator[str]:
    """What is wrong with a page. A path in `code` starts at the page, the root, src or include."""
    for match in _NAMED_FILE.finditer(_without_blocks(text)):
        starts = (page.parent, root, root / "src", root / "include")
        if not any((start / match.group(1)).exists() for start in starts):
            yield f"{page}:{_line_of(text, match.start())}: {match.group(1)} is not there"
    for match in _NAMED_TEST.finditer(_without_blocks(text)):
        path, name = match.groups()
        source = (root / path).read_text("utf-8") if (root / path).exists() else ""
        if not all(re.search(rf"\b{word}\b", source) for word in re.split(r"[./]", name)):
            yield f"{page}:{_line_of(text, match.start())}: there is no test {path}::{name}"
    prose = _prose(text)
    if not prose.strip() or _EMPTY.search(prose):
        yield f"{page}:1: is empty, or says that something is still to be written"
    for match in _LINK.finditer(prose):
        target, _, anchor = match.group(1).partition("#")
        where = f"{page}:{_line_of(text, match.start())}"
        if re.match(r"[a-z][a-z+.-]*:", target):
            continue  # another site; nothing is fetched here
        other = page.parent / target if target else page
        if not other.exists():
            yield f"{where}: {target} is not there"
        elif anchor and other.suffix == ".md" and anchor not in anchors(other.read_text("utf-8")):
            yield f"{where}: {target or page.name} has no heading #{anchor}"


def _same_in_all_languages(text: str) -> list[str]:
    """Commands without their comments, and the width of each row of each table."""
    found = []
    for block in _FENCE.finditer(text):
        if block.group(2) in ("sh", "python"):
            found += [line.partition("  #")[0].rstrip() for line in block.group(3).splitlines()]
    rows = [line for line in _without_blocks(text).splitlines() if line.startswith("|")]
    return found + [f"a row of {row.count('|') - 1}" for row in rows]


def check_translation(page: Path, text: str, original: str) -> Iterator[str]:
    """What has been changed in one language alone."""
    here, there = _same_in_all_languages(text), _same_in_all_languages(original)
    if here != there:
        ours, theirs = next(
            pair for pair in zip_longest(here, there, fillvalue="") if pair[0] != pair[1]
        )
        yield f"{page}:1: has '{ours}' where the English page has '{theirs}'"


def commands(text: str) -> list[Command]:
    blocks = list(_FENCE.finditer(text))
    found = []
    for index, block in enumerate(blocks):
        mark = _TESTED.search(text[: block.start()])
        if mark is None or block.group(2) != "sh":
            continue
        expected: list[str] = []
        after = blocks[index + 1] if index + 1 < len(blocks) else None
        if after and after.group(2) == "text" and not text[block.end() : after.start()].strip():
            expected = after.group(3).splitlines()
        seconds = int(mark.group(1) or DEFAULT_SECONDS)
        found.append(Command(_line_of(text, block.start()), block.group(3), seconds, expected))
    return found


def missing_line(expected: list[str], printed: str) -> str | None:
    """The first expected line that does not appear after those before it."""
    lines = iter(printed.splitlines())
    for want in expected:
        pattern = ".*".join(re.escape(part) for part in want.strip().split("..."))
        if want.strip() and not any(re.fullmatch(pattern, line.strip()) for line in lines):
            return want
    return None


def run(command: Command, root: Path) -> str | None:
    """Runs one block in the root of the tree; returns what is wrong."""
    environment = dict(os.environ)
    environment["PATH"] = f"{root / '.venv' / 'bin'}:{environment['PATH']}"
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", command.script],
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=command.seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
        return f"has not ended after {command.seconds} s\n{printed}"
    if process.returncode != 0:
        return f"exit code {process.returncode}\n{printed}"
    if (want := missing_line(command.expected, printed)) is not None:
        return f"did not print '{want}'\n{printed}"
    return None


def pages(root: Path) -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    found = [root / path for path in sorted(set(listed.split("\0")) - {""})]
    return [page for page in found if page.is_file()]


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--run"]):
        print("usage: check_docs.py [--run]", file=sys.stderr)
        return 2
    root = Path(__file__).resolve().parent.parent
    failed = count = 0
    for page in pages(root):
        text = page.read_text("utf-8")
        for complaint in check_page(page, text, root):
            print(complaint)
            failed += 1
        if page.suffixes == [".zh-CN", ".md"]:
            english = page.with_name(page.name.replace(".zh-CN", ""))
            for complaint in check_translation(page, text, english.read_text("utf-8")):
                print(complaint)
                failed += 1
        for part in (part for part in WRITTEN if page == root / part.page):
            for complaint in part.complaints(page, text, root):
                print(complaint)
                failed += 1
        for command in commands(text) if arguments else []:
            count += 1
            if (trouble := run(command, root)) is not None:
                print(f"{page}:{command.line}: {trouble}")
                failed += 1
    print(f"docs: {len(pages(root))} pages, {count} commands, {failed} complaints", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
