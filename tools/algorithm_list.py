#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the list of algorithms for docs/algorithms.md, out of the comments that stand over them.

``algorithm_list.py --write`` puts it into the page, between its two marks; check_docs.py complains
where the page has another one. Which algorithm carries out which operation stands in
src/plan/registry.cc; what it does, in the head comment of its file.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from written_part import WrittenPart

FIELDS = ("steps", "sends", "use for", "source")

_NAMES = re.compile(r"k(Operation|Algorithm)Names = \{(.*?)\};", re.DOTALL)
_ENUM = re.compile(r"\bk(\w+) = (\d+),")
_ROW = re.compile(r"\{Operation::k(\w+), Algorithm::k(\w+),\s*([\w<>]+)(?:,\s*Uneven::k(\w+))?\}")
_MADE = re.compile(r"^Plan (\w+)\(.*?\{\n  return (\w+)\(", re.MULTILINE)
_FIELD = re.compile(rf"   ({'|'.join(FIELDS)}) +(.*)")


@dataclass
class Head:
    """What the comment over an algorithm says."""

    title: str
    fields: dict[str, str] = field(default_factory=dict)


@dataclass
class Entry:
    """One or more algorithms of one file, for one operation."""

    operation: str
    names: list[str]
    file: str
    is_uneven: bool


def head_of(text: str, name: str) -> Head:
    """The comment at the start of ``name``.

    Raises:
        ValueError: A line of it is missing.
    """
    lines = []
    for line in text.splitlines()[1:]:
        if not line.startswith("//"):
            break
        lines.append(line[2:])
    paragraphs = "\n".join(lines).split("\n\n")
    title = " ".join(line.strip() for line in paragraphs[0].splitlines())
    head = Head(title.removeprefix(f"{name}: "))
    last = ""
    for line in "\n".join(paragraphs[1:]).splitlines():
        if found := _FIELD.fullmatch(line):
            last = found[1]
            head.fields[last] = found[2].strip()
        elif last and line.startswith("            "):
            head.fields[last] += " " + line.strip()
        else:
            last = ""
    if missing := [name for name in FIELDS if not head.fields.get(name)]:
        raise ValueError(f"the comment over {name} does not say: {', '.join(missing)}")
    return head


def _names(root: Path) -> dict[str, dict[str, str]]:
    """{"Algorithm": {"OneShot": "one_shot", ...}, "Operation": ...}"""
    source = (root / "src/plan/registry.cc").read_text("utf-8")
    found: dict[str, dict[str, str]] = {}
    headers = {"Operation": "include/ciuic/call.h", "Algorithm": "src/plan/registry.h"}
    for kind, header in headers.items():
        texts = re.findall(r'"(\w+)"', dict(_NAMES.findall(source))[kind])
        _, _, enum = (root / header).read_text("utf-8").partition(f"enum class {kind} ")
        values = _ENUM.findall(enum[: enum.index("};")])
        found[kind] = {name: texts[int(at)] for name, at in values if int(at) < len(texts)}
    return found


def entries(root: Path) -> list[Entry]:
    """All rows of the registry's table, in its order."""
    source = (root / "src/plan/registry.cc").read_text("utf-8")
    names = _names(root)
    made = dict(_MADE.findall(source))
    found: list[Entry] = []
    for operation, algorithm, maker, uneven in _ROW.findall(source):
        function = re.sub(r"rootless<(\w+)>", r"\1", maker)
        file = f"{made.get(function, function)}.cc"
        name = names["Algorithm"][algorithm]
        entry = Entry(names["Operation"][operation], [name], file, uneven == "Yes")
        if found and (found[-1].operation, found[-1].file) == (entry.operation, file):
            found[-1].names.append(name)
        else:
            found.append(entry)
    return found


def algorithms(root: Path) -> str:
    """The list, in Markdown, between empty lines.

    Raises:
        ValueError: A comment lacks something.
    """
    lines = [""]
    operation = ""
    for entry in entries(root):
        if entry.operation != operation:
            operation = entry.operation
            lines += [f"## {operation}", ""]
        head = head_of((root / "src/plan" / entry.file).read_text("utf-8"), entry.file)
        lines += [f"### {operation} by {', '.join(entry.names)}", "", head.title, ""]
        lines += [f"- **{name}** {head.fields[name]}" for name in FIELDS]
        file = f"`src/plan/{entry.file}`"
        lines += [f"- {file}; takes uneven counts" if entry.is_uneven else f"- {file}", ""]
    return "\n".join([*lines, ""])


PART = WrittenPart("algorithm_list.py", "docs/algorithms.md", "the source's list", algorithms)

if __name__ == "__main__":
    sys.exit(PART.main(sys.argv[1:]))
