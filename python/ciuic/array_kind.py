# SPDX-License-Identifier: Apache-2.0
"""What an operation asks of arrays, whichever library they are of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ciuic.errors import InvalidArgumentError


class ArrayKind(Protocol):
    """What differs between libraries of arrays."""

    name: str

    def check(self, x: Any, writes: bool) -> int | None:
        """Raises ValueError where ``x`` cannot be taken; gives the number of its dtype.

        None: the core has no such dtype, so that ``x`` can be moved and not reduced.
        """
        ...

    def device(self, x: Any) -> int:
        """The number of the CUDA device that ``x`` is on; -1 on the CPU."""
        ...

    def count(self, x: Any) -> int: ...

    def itemsize(self, x: Any) -> int:
        """Bytes of an element."""
        ...

    def shape(self, x: Any) -> tuple[int, ...]: ...

    def is_contiguous(self, x: Any) -> bool: ...

    def address(self, x: Any, writes: bool) -> int: ...

    def empty(self, x: Any, shape: Sequence[int]) -> Any:
        """New contiguous memory of ``x``'s dtype."""
        ...

    def copy(self, target: Any, source: Any) -> None:
        """Copies element by element, whatever the strides; ``target`` has ``source``'s shape."""
        ...

    def rows(self, x: Any) -> list[Any]:
        """The parts ``x[0], x[1], ...`` as arrays over the same memory."""
        ...


def refuse(what: str, instead: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{what}; {instead}. Nothing was sent.")
