# SPDX-License-Identifier: Apache-2.0
"""What the user can mend, as one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ciuic.errors import CiuicError


@contextmanager
def errors_as_lines(command: str) -> Iterator[None]:
    """An error that the user can mend becomes one line and exit code 2, not a traceback."""
    try:
        yield
    except (CiuicError, ValueError) as error:
        sys.stderr.write(f"ciuic {command}: {error}\n")
        raise SystemExit(2) from None
