# SPDX-License-Identifier: Apache-2.0
"""The list of checks that the ranks of a transport make, and their names.

A name is a path: transport, operation, dtype, op where it reduces, and ranks by elements, as in
``tcp/all_reduce/float16/avg/4x7``. ``--only`` takes the beginning of one, with ``*`` for any word.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ciuic import _native
from ciuic.dtypes import CODE_OF_NAME, SIZE_OF_CODE

REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_v")
MOVEMENTS = (
    *("broadcast", "all_gather", "all_gather_v", "gather", "gather_v", "scatter", "scatter_v"),
    *("all_to_all", "all_to_all_v", "send_recv", "recv_any", "coalesced", "persistent"),
)
OPERATIONS = ("join", *REDUCTIONS, *MOVEMENTS, "subgroup", "barrier")
"""In the order of the table. ``join`` is about the group itself: whether it is as demanded."""

RANKS = 4
SUBGROUP_RANKS = 3
SMALL_COUNT = 7
LARGE_BYTES = 200_000
"""Of an array, or of its part for each rank: several chunks, in every algorithm."""


@dataclass(frozen=True)
class Case:
    """One check.

    Attributes:
        operation: One of :data:`OPERATIONS`.
        dtype: Name of the dtype; empty for ``join`` and ``barrier``.
        op: Name of the reduction; empty where nothing is reduced.
        ranks: How many ranks take part. 2 of them twice at once: all ranks have something to do.
        count: Elements of an array, or of its part for each rank, where the parts are even.
    """

    operation: str
    dtype: str
    op: str
    ranks: int
    count: int

    @property
    def name(self) -> str:
        """Without the transport."""
        shape = f"{self.ranks}x{self.count}" if self.dtype else str(self.ranks)
        return "/".join(word for word in (self.operation, self.dtype, self.op, shape) if word)


def all_cases(*, quick: bool = False) -> list[Case]:
    """Of one transport, in the order in which they are made; ``quick``: those of 4 ranks alone."""
    cases = [Case("join", "", "", RANKS, 0)]
    for ranks in (RANKS,) if quick else (RANKS, 2):
        cases += _of_group(ranks, quick)
        cases.append(Case("barrier", "", "", ranks, 0))
    for dtype in CODE_OF_NAME:
        cases.append(Case("subgroup", dtype, "", SUBGROUP_RANKS, _large_count(dtype)))
    return cases


def _of_group(ranks: int, quick: bool) -> Iterator[Case]:
    for dtype in CODE_OF_NAME:
        large = _large_count(dtype)
        for operation in REDUCTIONS:
            for op in ops_of(dtype):
                for count in (SMALL_COUNT,) if quick else (SMALL_COUNT, large):
                    yield Case(operation, dtype, op, ranks, count)
        for operation in MOVEMENTS:
            for count in (large,) if quick else (SMALL_COUNT, large):
                yield Case(operation, dtype, "", ranks, count)


def ops_of(dtype: str) -> list[str]:
    """The reductions that are defined for it."""
    code = CODE_OF_NAME[dtype]
    return [name for name, op in _native.op_codes.items() if _native.is_reducible(code, op)]


def _large_count(dtype: str) -> int:
    """An odd one: no algorithm can divide it."""
    return LARGE_BYTES // SIZE_OF_CODE[CODE_OF_NAME[dtype]] | 1


def matches(name: str, only: Sequence[str]) -> bool:
    """Whether one of the patterns is the name, or the beginning of it; all are, where none is."""
    words = name.split("/")
    for pattern in only:
        wanted = pattern.strip("/").split("/")
        if len(wanted) <= len(words) and all(
            fnmatch.fnmatchcase(word, want) for word, want in zip(words, wanted, strict=False)
        ):
            return True
    return not only
