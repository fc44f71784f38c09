#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of operations and dtypes for docs/dtypes.md, out of the library's own.

``dtype_table.py --write`` puts it into the page, between its two marks; check_docs.py complains
where the page has another one. The library's stands in src/base/dtype.cc.
"""

from __future__ import annotations

import sys
from pathlib import Path

from written_part import WrittenPart


def table(_root: Path) -> str:
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


PART = WrittenPart("dtype_table.py", "docs/dtypes.md", "the library's table", table)

if __name__ == "__main__":
    sys.exit(PART.main(sys.argv[1:]))
