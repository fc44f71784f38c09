# SPDX-License-Identifier: Apache-2.0
"""The operations that bring the ranks' arrays together, as :mod:`ciuic.collectives` has those that
reduce. They take any dtype, and change no bit of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ciuic import _native, submission
from ciuic import context as contexts
from ciuic.buffers import Buffer
from ciuic.handles import Handle
from ciuic.submission import NOWHERE, Budget, Call, check_counts, check_rank, refuse, submit

if TYPE_CHECKING:
    from ciuic.context import CiuicContext

_ALL_GATHER = _native.operation_codes["all_gather"]
_GATHER = _native.operation_codes["gather"]


def all_gather(
    x: Any,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> list[Any]:
    """Gather ``x`` of every rank on every rank.

    Args:
        x: ``[...]``, one array, of the same shape and dtype on all ranks; may be read-only.
        context: The group of ranks. ``None`` takes the process's default context.
        timeout_s: Seconds from this call to the result. ``None`` takes the context's.
        algorithm: As for :func:`ciuic.all_reduce`.

    Returns:
        A list of ``world_size`` new arrays of ``x``'s shape and dtype, in rank order. They share
        one block of memory, without overlap.

    Raises:
        ValueError: ``x`` is no array that can be taken. Nothing was sent.
        ciuic.MismatchError, ciuic.TimeoutError, ciuic.PeerLostError, ciuic.AbortedError:
            ``context`` takes no more work.

    Cost: ``(n - 1) * nbytes`` sent per rank at most. Strides cost a copy.
    Source: ``Communicator::all_gather``.
    """
    result: list[Any] = _gather(x, None, context, timeout_s, algorithm, blocking=True).wait()
    return result


def all_gather_async(
    x: Any,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Handle:
    """Start what :func:`all_gather` does, and return at once; ``wait()`` gives its result."""
    return _gather(x, None, context, timeout_s, algorithm, blocking=False)


def all_gather_v(
    x: Any,
    counts: Sequence[int] | None = None,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> list[Any]:
    """Gather arrays that differ in their number of rows, of every rank on every rank.

    Args:
        x: ``[rows, ...]``, one array; ``rows`` may differ between ranks and be 0, the other
            dimensions and the dtype do not. May be read-only.
        counts: Every rank's ``rows``, alike on all ranks. ``None``, on all ranks: they tell each
            other first.
        context, timeout_s, algorithm: As for :func:`all_gather`.

    Returns:
        A list of ``world_size`` new arrays, the ``r``-th ``[counts[r], ...]``. They share one block
        of memory, without overlap.

    Raises:
        As :func:`all_gather`; ciuic.MismatchError also where ranks differ in ``counts``.

    Cost: ``(n - 1) * nbytes`` sent per rank at most. Without ``counts`` a blocking all-gather of 8
    bytes first, also of the ``_async`` form. Source: ``Communicator::all_gather_v``.
    """
    result: list[Any] = _gather_v(
        x, None, counts, context, timeout_s, algorithm, blocking=True
    ).wait()
    return result


def all_gather_v_async(
    x: Any,
    counts: Sequence[int] | None = None,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Handle:
    """Start what :func:`all_gather_v` does, and return at once; ``wait()`` gives its result."""
    return _gather_v(x, None, counts, context, timeout_s, algorithm, blocking=False)


def gather(
    x: Any,
    dst: int = 0,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> list[Any] | None:
    """Gather ``x`` of every rank on rank ``dst``.

    Args:
        x: As for :func:`all_gather`.
        dst: Rank that gets the arrays.
        context, timeout_s, algorithm: As for :func:`all_gather`.

    Returns:
        On ``dst`` what :func:`all_gather` returns, elsewhere ``None``.

    Raises:
        As :func:`all_gather`.

    Cost: ``dst`` receives ``(n - 1) * nbytes``. Source: ``Communicator::gather``.
    """
    result: list[Any] | None = _gather(x, dst, context, timeout_s, algorithm, blocking=True).wait()
    return result


def gather_async(
    x: Any,
    dst: int = 0,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Handle:
    """Start what :func:`gather` does, and return at once; ``wait()`` gives its result."""
    return _gather(x, dst, context, timeout_s, algorithm, blocking=False)


def gather_v(
    x: Any,
    dst: int = 0,
    counts: Sequence[int] | None = None,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> list[Any] | None:
    """Gather arrays that differ in their number of rows, of every rank on rank ``dst``.

    Args:
        x: As for :func:`all_gather_v`.
        dst: Rank that gets the arrays.
        counts: Every rank's ``rows``, given on all ranks or on none: then they tell ``dst`` first.
        context, timeout_s, algorithm: As for :func:`all_gather`.

    Returns:
        On ``dst`` what :func:`all_gather_v` returns, elsewhere ``None``.

    Raises:
        As :func:`all_gather`; ciuic.MismatchError also where a rank has another number of rows than
        ``dst`` expects.

    Cost: ``dst`` receives what the others have. Without ``counts`` a blocking gather of 8 bytes
    first, also of the ``_async`` form. Source: ``Communicator::gather_v``.
    """
    result: list[Any] | None = _gather_v(
        x, dst, counts, context, timeout_s, algorithm, blocking=True
    ).wait()
    return result


def gather_v_async(
    x: Any,
    dst: int = 0,
    counts: Sequence[int] | None = None,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Handle:
    """Start what :func:`gather_v` does, and return at once; ``wait()`` gives its result."""
    return _gather_v(x, dst, counts, context, timeout_s, algorithm, blocking=False)


def _gather(
    x: Any,
    dst: int | None,
    context: CiuicContext | None,
    timeout_s: float | None,
    algorithm: str | None,
    *,
    blocking: bool,
) -> Handle:
    """On rank ``dst``, or on every rank."""
    context = contexts.of(context)
    timeout_ms = contexts.milliseconds(timeout_s)
    root = _root(dst, context)
    size = context.world_size
    buffer = Buffer(x, writes=False, moves=True)
    address, count, dtype = buffer.place()
    gathered = result = None
    target = NOWHERE
    if dst is None or context.rank == root:
        gathered = buffer.empty((size, *buffer.kind.shape(buffer.array)))
        target = (buffer.kind.address(gathered, True), size * count)
        result = buffer.kind.rows(gathered)
    call = Call(_operation(dst), (address, count), target, dtype, root=root)
    return submit(
        context,
        call,
        timeout_ms,
        (x, buffer, gathered),
        result,
        algorithm=algorithm,
        blocking=blocking,
    )


def _gather_v(
    x: Any,
    dst: int | None,
    counts: Sequence[int] | None,
    context: CiuicContext | None,
    timeout_s: float | None,
    algorithm: str | None,
    *,
    blocking: bool,
) -> Handle:
    """On rank ``dst``, or on every rank."""
    context = contexts.of(context)
    budget = Budget(context, timeout_s)
    timeout_ms = budget.whole_ms
    root = _root(dst, context)
    buffer = Buffer(x, writes=False, moves=True)
    name = "all_gather_v" if dst is None else "gather_v"
    rows, every = _rows(name, buffer, counts, context)
    address, count, dtype = buffer.place()
    if counts is None:
        if dst is None:
            every = submission.all_gather_count(context, rows, budget)
        else:
            every = submission.gather_count(context, rows, root, budget)
        timeout_ms = budget.left_ms()
    gathered = result = None
    target = NOWHERE
    output_counts: list[int] = []
    if dst is None or context.rank == root:
        rest = buffer.kind.shape(buffer.array)[1:]
        unit = submission.elements(rest) * buffer.unit
        gathered = buffer.empty((sum(every), *rest))
        output_counts = [unit * each for each in every]
        target = (buffer.kind.address(gathered, True), sum(output_counts))
        result = submission.slices(gathered, every)
    call = Call(
        _operation(dst),
        (address, count),
        target,
        dtype,
        root=root,
        uneven=True,
        output_counts=output_counts,
    )
    return submit(
        context,
        call,
        timeout_ms,
        (x, buffer, gathered),
        result,
        algorithm=algorithm,
        blocking=blocking,
    )


def _operation(dst: int | None) -> int:
    return _ALL_GATHER if dst is None else _GATHER


def _root(dst: int | None, context: CiuicContext) -> int:
    return 0 if dst is None else check_rank("dst", dst, context)


def _rows(name: str, buffer: Buffer, counts: Any, context: CiuicContext) -> tuple[int, list[int]]:
    """This rank's rows, and all ranks', where they are given."""
    rows = submission.rows_of(name, buffer)
    if counts is None:
        return rows, []
    counts = check_counts(f"{name}: counts", counts, context)
    if counts[context.rank] != rows:
        raise refuse(
            f"{name}: x has {rows} rows, and counts says {counts[context.rank]} for this rank"
        )
    return rows, counts
