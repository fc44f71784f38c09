#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of operations and dtypes for docs/dtypes.md, out of the library's own.

``dtype_table.py --write`` puts it into the page, between its two marks; check_docs.py complains
where the page has another one. The library's stands in src/base/dtype.cc.
"""

from __future__ import annotations

import sys
from pathlib import Path

BEGIN = "<!-- tools/dtype_table.py writes from here -->\n"
END = "<!-- to here -->\n"
PAGE = "docs/dtypes.md"


def table() -> str:
    """The rows, in Markdown, between empty lines.

    Raises:
        ImportError: The package is not there.
    """
    from ciuic import _native

    ops = list(_native.op_codes.items())
    lines = [
        f"| dtype | bytes | {' | '.join(name.upper() for name, _ in ops)} |",
        "|---|---|" + "---|" * len(ops),
    ]
    for name, code in _native.dtype_codes.items():
        cells = ["yes" if _native.is_reducible(code, op) else "no" for _, op in ops]
        lines.append(f"| `{name}` | {_native.dtype_sizes[code]} | {' | '.join(cells)} |")
    return "\n".join(["", *lines, "", ""])


def split(text: str) -> tuple[str, str, str]:
    """What stands before the table, the table, and what stands after it.

    Raises:
        ValueError: A mark is missing.
    """
    before, begin, rest = text.partition(BEGIN)
    found, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"lacks {BEGIN.strip()!r} or {END.strip()!r}")
    return before, found, after


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--write"]):
        print("usage: dtype_table.py [--write]", file=sys.stderr)
        return 2
    made = table()
    if not arguments:
        print(made.strip())
        return 0
    page = Path(__file__).resolve().parent.parent / PAGE
    before, _, after = split(page.read_text("utf-8"))
    page.write_text(f"{before}{BEGIN}{made}{END}{after}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
