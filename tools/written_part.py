# SPDX-License-Identifier: Apache-2.0
"""A part of a page that a tool writes, between two marks: printed, put into the page, compared."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
END = "<!-- to here -->\n"


@dataclass(frozen=True)
class WrittenPart:
    """What a tool writes into a page.

    Attributes:
        tool: The file of tools/ that writes it; the mark in front names it.
        page: Where, from the root of the tree on.
        what: It is, in complaints.
        make: Makes it, in Markdown, between empty lines, out of the tree at that path; raises
            ValueError where the tree lacks something, ImportError where a package is missing.
    """

    tool: str
    page: str
    what: str
    make: Callable[[Path], str]

    @property
    def begin(self) -> str:
        return f"<!-- tools/{self.tool} writes from here -->\n"

    def split(self, text: str) -> tuple[str, str, str]:
        """What stands before the part in a page's text, the part, and what stands after it.

        Raises:
            ValueError: A mark is missing.
        """
        before, begin, rest = text.partition(self.begin)
        found, end, after = rest.partition(END)
        if not begin or not end:
            raise ValueError(f"lacks {self.begin.strip()!r} or {END.strip()!r}")
        return before, found, after

    def complaints(self, page: Path, text: str, root: Path) -> Iterator[str]:
        """Whether the page has what the tool would write."""
        try:
            wanted = self.make(root)
            before, found, _ = self.split(text)
        except ImportError as error:
            print(f"{page}: not compared with {self.what}: {error}", file=sys.stderr)
            return
        except ValueError as error:
            yield f"{page}:1: {error}"
            return
        if found != wanted:
            line = before.count("\n") + 2
            yield f"{page}:{line}: is not {self.what}; run tools/{self.tool} --write"

    def main(self, arguments: list[str]) -> int:
        """The tool's command: prints the part; ``--write`` puts it into the page."""
        if arguments not in ([], ["--write"]):
            print(f"usage: {self.tool} [--write]", file=sys.stderr)
            return 2
        made = self.make(ROOT)
        if not arguments:
            print(made.strip())
            return 0
        page = ROOT / self.page
        before, _, after = self.split(page.read_text("utf-8"))
        page.write_text(f"{before}{self.begin}{made}{END}{after}", "utf-8")
        return 0
