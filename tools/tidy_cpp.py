# SPDX-License-Identifier: Apache-2.0
"""Reads C++ as far as tidy needs it: what is code, where functions are, what is included.

No parser: braces are matched, and what stands before one tells what it opens. That suffices for
code formatted by clang-format; a construct that it misreads is a case for tidy_test.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""//[^\n]*
      | /\*.*?\*/
      | R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"
      | "(?:\\.|[^"\\\n])*"
      | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'
      | ^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)
_ACCESS = re.compile(r"\s*(?:public|protected|private)\s*:(?!:)")
_MEMBER_INITIALISERS = re.compile(r"\)\s*(?:noexcept\s*(?:\([^)]*\))?\s*)?:(?!:)")
_IN_ANGLES_OR_ROUND = re.compile(r"\b(?:alignas|__attribute__)\s*\(+[^)]*\)+|<[^<>]*>")


@dataclass
class Function:
    """A function's definition, from the first line of its head to the line of its last brace."""

    name: str
    first_line: int
    last_line: int

    @property
    def lines(self) -> int:
        return self.last_line - self.first_line + 1


@dataclass
class Include:
    path: str
    line: int
    system: bool  # <...>


def code_only(text: str) -> str:
    """Blanks comments, texts and preprocessor lines; every line stays where it is."""
    return _TOKEN.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def includes(text: str) -> list[Include]:
    return [
        Include(match.group(2), text.count("\n", 0, match.start()) + 1, match.group(1) == "<")
        for match in _INCLUDE.finditer(text)
    ]


def tests(text: str) -> list[tuple[str, int]]:
    """GoogleTest's cases, as ("Suite.Name", line)."""
    return [
        (f"{match.group(1)}.{match.group(2)}", text.count("\n", 0, match.start()) + 1)
        for match in _TEST.finditer(code_only(text))
    ]


def _opens(head: str) -> str:
    """What a brace opens that comes after `head` in a namespace or class: scope, init, function."""
    if "(" not in head and re.search(r"\b(?:namespace|extern)\b", head):
        return "scope"
    bare = head
    while (simpler := _IN_ANGLES_OR_ROUND.sub(" ", bare)) != bare:
        bare = simpler
    if "(" not in bare:
        return "scope" if re.search(r"\b(?:class|struct|union|enum)\b", bare) else "init"
    end = head.rstrip()[-1:]
    if end == "=" or head.count("(") != head.count(")"):
        return "init"
    if _MEMBER_INITIALISERS.search(head) and (end.isalnum() or end in "_>"):
        return "init"  # the braces of a member, not yet of the constructor
    return "function"


def _name(head: str) -> str:
    match = re.search(r"([~\w:]+|operator\s*\S+?)\s*\(", re.sub(r"\btemplate\s*<[^>]*>", "", head))
    if match is None:
        return "?"
    if re.fullmatch(r"(?:TYPED_)?TEST(?:_[FP])?", match.group(1)):
        return re.sub(r"\s+", " ", head[match.start() :].strip())
    return match.group(1)


def functions(text: str) -> list[Function]:
    """All functions that are defined in namespaces and classes; lambdas are part of theirs."""
    code = code_only(text)
    found: list[Function] = []
    stack: list[tuple[str, str, int]] = []  # what is open: kind, name, offset of its first line
    head = 0  # where the present declaration begins
    for match in re.finditer(r"[{};]", code):
        kind = stack[-1][0] if stack else "scope"
        if match.group() == "{":
            if kind != "scope":
                stack.append(("block" if kind in ("function", "block") else "init", "", 0))
                continue
            while (access := _ACCESS.match(code, head)) is not None:
                head = access.end()
            before = code[head : match.start()]
            opened = _opens(before)
            start = head + len(before) - len(before.lstrip())
            stack.append((opened, _name(before) if opened == "function" else "", start))
            if opened == "scope":
                head = match.end()
        elif match.group() == "}" and stack:
            kind, name, start = stack.pop()
            if kind == "function":
                first = code.count("\n", 0, start) + 1
                found.append(Function(name, first, code.count("\n", 0, match.start()) + 1))
            if kind in ("function", "scope"):
                head = match.end()
        elif match.group() == ";" and kind == "scope":
            head = match.end()
    return found
