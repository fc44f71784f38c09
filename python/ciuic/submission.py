# SPDX-License-Identifier: Apache-2.0
"""From checked arguments to the core, and what the operations check alike."""

from __future__ import annotations

import array
import operator
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ciuic import _native, collecting
from ciuic import context as contexts
from ciuic.buffers import Buffer
from ciuic.dtypes import CODE_OF_NAME
from ciuic.errors import InvalidArgumentError
from ciuic.handles import Handle
from ciuic.plan import registry

if TYPE_CHECKING:
    from ciuic.context import CiuicContext

Call = _native.Call

NOWHERE = (0, 0)  # address and count of a side that a rank does not have

_ALL_GATHER = _native.operation_codes["all_gather"]
_ALL_TO_ALL = _native.operation_codes["all_to_all"]
_GATHER = _native.operation_codes["gather"]


def submit(
    context: CiuicContext,
    call: _native.Call,
    timeout_ms: int,
    keep: Any,
    result: Any,
    finish: Callable[[], None] | None = None,
    *,
    algorithm: str | None = None,
    blocking: bool,
) -> Handle:
    """Makes the call. ``keep`` is what must live until it has ended; the result is ``result``."""
    if algorithm is not None:
        call = by(call, context, algorithm)
    if blocking:
        context._native.submit((call,), timeout_ms, None)
        return Handle((), result, finish)
    return Handle((context._native.submit((call,), timeout_ms, keep),), result, finish)


def by(call: _native.Call, context: CiuicContext, algorithm: str | None) -> _native.Call:
    """``call``, to be carried out by ``algorithm``. ``None``: the library's choice."""
    if algorithm is not None:
        registry.add_to(context, call.operation, algorithm, call.root)
        call.use(algorithm)
    return call


class Budget:
    """The time of one call, which may have several parts."""

    __slots__ = ("_end", "whole_ms")

    def __init__(self, context: CiuicContext, timeout_s: float | None) -> None:
        self.whole_ms = contexts.milliseconds(timeout_s)
        self._end = time.monotonic() + (context.timeout_s if timeout_s is None else timeout_s)

    def left_ms(self) -> int:
        return max(1, round(1000 * min(self._end - time.monotonic(), 1e9)))


def refuse(message: str) -> InvalidArgumentError:
    """An error of the caller's."""
    return InvalidArgumentError(f"{message}. Nothing was sent.")


def check_rank(name: str, rank: Any, context: CiuicContext) -> int:
    """A rank of the context, as an int."""
    try:
        number = operator.index(rank)
    except TypeError:
        number = -1
    if not 0 <= number < context.world_size:
        raise refuse(f"{name}={rank} is no rank; there are 0 to {context.world_size - 1}")
    return number


def check_counts(name: str, counts: Any, context: CiuicContext) -> list[int]:
    """One number of rows for each rank, as a list."""
    size = context.world_size
    try:
        checked = [operator.index(count) for count in counts]
    except TypeError:
        raise refuse(f"{name}={counts!r} is no list of {size} whole numbers") from None
    if len(checked) != size:
        raise refuse(
            f"{name} has {len(checked)} entries; give one for each of the {size} ranks, 0 where "
            "there are no rows"
        )
    if min(checked) < 0:
        raise refuse(f"{name}={checked} has a negative number of rows")
    return checked


def arrays_of(x: Any) -> list[Any]:
    """The arrays of an iterable."""
    if not isinstance(x, Iterable):
        raise refuse(
            f"{type(x).__name__} is neither an array nor an iterable of arrays; a number goes in "
            "one, numpy.array([x])"
        )
    return list(x)


def elements(shape: Sequence[int]) -> int:
    product = 1
    for length in shape:
        product *= length
    return product


def rows_of(name: str, buffer: Buffer) -> int:
    """How many rows an array has: the length of its first dimension."""
    shape = buffer.kind.shape(buffer.array)
    if not shape:
        raise refuse(f"{name}: an array without dimensions has no rows; give x.reshape(1)")
    return shape[0]


def slices(whole: Any, rows: Sequence[int]) -> list[Any]:
    """An array cut along its first dimension, as arrays over the same memory."""
    parts = []
    begin = 0
    for count in rows:
        parts.append(whole[begin : begin + count])
        begin += count
    return parts


# ---- what ranks tell each other of their sizes, before the operation itself ----


def _place(numbers: array.array[int]) -> tuple[int, int]:
    return numbers.buffer_info()


def _run(context: CiuicContext, call: _native.Call, budget: Budget) -> None:
    if collecting.is_here(context):
        raise refuse(
            "the numbers of rows are not given: the ranks would have to ask each other first, "
            "which blocks, and calls inside coalesce() or persistent() are only collected; give "
            "them"
        )
    context._native.submit((call,), budget.whole_ms, None, of_library=True)


def all_gather_count(context: CiuicContext, count: int, budget: Budget) -> list[int]:
    """Every rank's ``count``."""
    own = array.array("q", (count,))
    every = array.array("q", bytes(8 * context.world_size))
    int64 = CODE_OF_NAME["int64"]
    _run(context, Call(_ALL_GATHER, _place(own), _place(every), int64), budget)
    return list(every)


def gather_count(context: CiuicContext, count: int, dst: int, budget: Budget) -> list[int]:
    """Every rank's ``count``, on rank ``dst``; elsewhere an empty list."""
    own = array.array("q", (count,))
    every = array.array("q", bytes(8 * context.world_size if context.rank == dst else 0))
    int64 = CODE_OF_NAME["int64"]
    _run(context, Call(_GATHER, _place(own), _place(every), int64, root=dst), budget)
    return list(every)


def exchange_counts(context: CiuicContext, counts: list[int], budget: Budget) -> list[int]:
    """What every rank has for this one."""
    given = array.array("q", counts)
    got = array.array("q", bytes(8 * context.world_size))
    int64 = CODE_OF_NAME["int64"]
    _run(context, Call(_ALL_TO_ALL, _place(given), _place(got), int64), budget)
    return list(got)
