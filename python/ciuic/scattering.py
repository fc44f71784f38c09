# SPDX-License-Identifier: Apache-2.0
"""The operations that give arrays to other ranks, as :mod:`ciuic.collectives` has those that
reduce. They take any dtype, and change no bit of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ciuic import _native, buckets, buffers, parts, submission
from ciuic import context as contexts
from ciuic.buffers import Buffer
from ciuic.handles import Handle
from ciuic.submission import NOWHERE, Budget, Call, by, check_counts, check_rank, refuse, submit

if TYPE_CHECKING:
    from ciuic.context import CiuicContext

_BROADCAST = _native.operation_codes["broadcast"]
_SCATTER = _native.operation_codes["scatter"]
_ALL_TO_ALL = _native.operation_codes["all_to_all"]


def broadcast(
    x: Any,
    src: int = 0,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Any:
    """Overwrite ``x`` with that of rank ``src``.

    Args:
        x: ``[...]``, any strides, of the same shape and dtype on all ranks; or an iterable of
            arrays of one dtype, which travel merged. Of parameters it is the values that are sent.
        src: Rank whose values all get.
        context: The group of ranks. ``None`` takes the process's default context.
        timeout_s: Seconds from this call to the result. ``None`` takes the context's.
        algorithm: As for :func:`ciuic.all_reduce`.

    Returns:
        ``x``.

    Raises:
        ValueError: ``x`` is no array that can be taken, or cannot be written. Nothing was sent.
        ciuic.MismatchError, ciuic.TimeoutError, ciuic.PeerLostError, ciuic.AbortedError: ``x`` is
            undefined, and ``context`` takes no more work.

    Cost: ``nbytes`` sent per rank at most. Strides, and merging, cost a copy each way.
    Source: ``Communicator::broadcast``.
    """
    return _broadcast(x, src, context, timeout_s, algorithm, blocking=True).wait()


def broadcast_async(
    x: Any,
    src: int = 0,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Handle:
    """Start what :func:`broadcast` does, and return at once."""
    return _broadcast(x, src, context, timeout_s, algorithm, blocking=False)


def scatter(
    out: Any,
    xs: Any = None,
    src: int = 0,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Any:
    """Give each rank one of the arrays that rank ``src`` has.

    Args:
        out: ``[...]``, any strides, of the same shape and dtype on all ranks: where this rank's
            array is written.
        xs: On ``src``, an iterable of ``world_size`` arrays of ``out``'s shape and dtype, or one
            array ``[world_size, *out.shape]``; may be read-only. Elsewhere not looked at.
        src: Rank that has them.
        context, timeout_s, algorithm: As for :func:`broadcast`.

    Returns:
        ``out``.

    Raises:
        As :func:`broadcast`.

    Cost: ``src`` sends ``(n - 1) * nbytes``. A list is copied together first, unless its arrays lie
    one after the other.
    Source: ``Communicator::scatter``.
    """
    return _scatter("scatter", out, xs, src, context, timeout_s, algorithm, blocking=True).wait()


def scatter_async(
    out: Any,
    xs: Any = None,
    src: int = 0,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Handle:
    """Start what :func:`scatter` does, and return at once."""
    return _scatter("scatter", out, xs, src, context, timeout_s, algorithm, blocking=False)


def scatter_v(
    out: Any,
    xs: Any = None,
    src: int = 0,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Any:
    """What :func:`scatter` does, with arrays that differ in shape.

    Args:
        out: ``[...]``, any strides, of the shape of this rank's array.
        xs: On ``src``, an iterable of ``world_size`` arrays of one dtype, the ``r``-th of the shape
            of rank ``r``'s ``out``. Elsewhere not looked at.
        src, context, timeout_s, algorithm: As for :func:`scatter`.

    Returns:
        ``out``.

    Raises:
        As :func:`broadcast`; ciuic.MismatchError also where ``src`` has another number of elements
        for a rank than its ``out``.

    Cost: ``src`` sends what the other ranks get. Source: ``Communicator::scatter_v``.
    """
    return _scatter("scatter_v", out, xs, src, context, timeout_s, algorithm, blocking=True).wait()


def scatter_v_async(
    out: Any,
    xs: Any = None,
    src: int = 0,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Handle:
    """Start what :func:`scatter_v` does, and return at once."""
    return _scatter("scatter_v", out, xs, src, context, timeout_s, algorithm, blocking=False)


def all_to_all(
    x: Any,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Any:
    """Give each rank its part of ``x``, and get one from each.

    Args:
        x: ``[world_size * k, ...]``, one array, of which the rows ``r * k`` to ``(r + 1) * k`` go
            to rank ``r``; or an iterable of ``world_size`` arrays of one shape and dtype, of which
            the ``r``-th goes there. Alike on all ranks in shape and dtype; may be read-only.
        context, timeout_s, algorithm: As for :func:`broadcast`.

    Returns:
        A new array of ``x``'s shape, whose rows ``r * k`` to ``(r + 1) * k`` came from rank ``r``;
        or a list of new arrays, which share one block of memory.

    Raises:
        As :func:`broadcast`; ValueError also where the ranks cannot share the rows evenly.

    Cost: ``(n - 1) / n * nbytes`` sent per rank. A list is copied together first, unless its arrays
    lie one after the other.
    Source: ``Communicator::all_to_all``.
    """
    return _all_to_all(x, context, timeout_s, algorithm, blocking=True).wait()


def all_to_all_async(
    x: Any,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Handle:
    """Start what :func:`all_to_all` does, and return at once; ``wait()`` gives its result."""
    return _all_to_all(x, context, timeout_s, algorithm, blocking=False)


def all_to_all_v(
    x: Any,
    input_split_sizes: Sequence[int] | None = None,
    output_split_sizes: Sequence[int] | None = None,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Any:
    """What :func:`all_to_all` does, in parts that differ in their number of rows.

    Args:
        x: ``[rows, ...]``, one array; or an iterable of ``world_size`` arrays ``[rows_r, ...]`` of
            one dtype, of which the ``r``-th goes to rank ``r``. The dimensions after the first one
            and the dtype are alike everywhere. May be read-only.
        input_split_sizes: Of one array, how many of its rows go to each rank; together all of them.
            Zeros are fine.
        output_split_sizes: How many rows come from each rank. ``None``, on all ranks: they tell
            each other first.
        context, timeout_s, algorithm: As for :func:`broadcast`.

    Returns:
        A new array ``[sum(output_split_sizes), ...]`` with the rows of rank 0 first; or a list of
        new arrays, the ``r``-th ``[output_split_sizes[r], ...]``, which share one block of memory.

    Raises:
        As :func:`broadcast`; ciuic.MismatchError also where a rank gives another number of elements
        than the other one expects: it names both.

    Cost: what goes to other ranks is sent once. Without ``output_split_sizes`` a blocking
    all-to-all of 8 bytes a rank first, also of the ``_async`` form.
    Source: ``Communicator::all_to_all_v``.
    """
    return _all_to_all_v(
        x, input_split_sizes, output_split_sizes, context, timeout_s, algorithm, blocking=True
    ).wait()


def all_to_all_v_async(
    x: Any,
    input_split_sizes: Sequence[int] | None = None,
    output_split_sizes: Sequence[int] | None = None,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Handle:
    """Start what :func:`all_to_all_v` does, and return at once; ``wait()`` gives its result."""
    return _all_to_all_v(
        x, input_split_sizes, output_split_sizes, context, timeout_s, algorithm, blocking=False
    )


def _broadcast(
    x: Any,
    src: int,
    context: CiuicContext | None,
    timeout_s: float | None,
    algorithm: str | None,
    *,
    blocking: bool,
) -> Handle:
    context = contexts.of(context)
    timeout_ms = contexts.milliseconds(timeout_s)
    src = check_rank("src", src, context)
    if not buffers.is_array(x):
        return _broadcast_merged(x, src, context, timeout_ms, algorithm, blocking)
    buffer = Buffer(x, writes=True, moves=True)
    address, count, dtype = buffer.place()
    place = (address, count)
    call = Call(_BROADCAST, place, place, dtype, root=src)
    return submit(
        context,
        call,
        timeout_ms,
        (x, buffer),
        x,
        buffer.finish,
        algorithm=algorithm,
        blocking=blocking,
    )


def _broadcast_merged(
    x: Any,
    src: int,
    context: CiuicContext,
    timeout_ms: int,
    algorithm: str | None,
    blocking: bool,
) -> Handle:
    arrays = buckets.unique(submission.arrays_of(x))
    of_parameters = buffers.parameters_among(arrays) > 0
    merged = buckets.Merged(arrays, mixed_dtypes=of_parameters, moves=True)
    packed = [buckets.Bucket(group) for group in merged.groups]
    works = []
    for bucket in packed:
        address, count, dtype = bucket.place
        call = Call(_BROADCAST, (address, count), (address, count), dtype, root=src)
        call = by(call, context, algorithm)
        keep = (arrays, bucket, merged)
        works.append(context._native.submit((call,), timeout_ms, keep, blocking))
    return Handle(works, x, buckets.finisher(packed, merged))


def _scatter(
    name: str,
    out: Any,
    xs: Any,
    src: int,
    context: CiuicContext | None,
    timeout_s: float | None,
    algorithm: str | None,
    *,
    blocking: bool,
) -> Handle:
    context = contexts.of(context)
    timeout_ms = contexts.milliseconds(timeout_s)
    src = check_rank("src", src, context)
    buffer = Buffer(out, writes=True, moves=True)
    given = None
    source = NOWHERE
    counts: list[int] = []
    is_uneven = name == "scatter_v"
    if context.rank == src:
        given = _scattered(name, buffer, xs, context)
        source = given.place
        counts = given.counts() if is_uneven else []
    address, count, dtype = buffer.place(reads=False)
    call = Call(
        _SCATTER,
        source,
        (address, count),
        dtype,
        root=src,
        uneven=is_uneven,
        input_counts=counts,
    )
    keep = (out, buffer, given and given.keep)
    return submit(
        context, call, timeout_ms, keep, out, buffer.finish, algorithm=algorithm, blocking=blocking
    )


def _scattered(name: str, buffer: Buffer, xs: Any, context: CiuicContext) -> parts.Parts:
    """What rank ``src`` gives, checked against its own ``out``."""
    if xs is None:
        raise refuse(f"{name}: this is rank src, which gives xs: an array for each rank")
    shape = buffer.kind.shape(buffer.array)
    if name == "scatter_v":
        given = parts.uneven(name, xs, None, "list of arrays", context, moves=True)
    elif buffers.is_array(xs):
        given = parts.rows(name, xs, context)
    else:
        given = parts.even(name, xs, context, moves=True)
    own = given.shapes[context.rank]
    if own != shape:
        raise refuse(f"{name}: out has shape {shape}, and the array for this rank {own}")
    if given.buffer.dtype != buffer.dtype:
        raise refuse(
            f"{name}: out is {buffer.dtype}, and the arrays are {given.buffer.dtype}; give all the "
            "same dtype"
        )
    return given


def _all_to_all(
    x: Any,
    context: CiuicContext | None,
    timeout_s: float | None,
    algorithm: str | None,
    *,
    blocking: bool,
) -> Handle:
    context = contexts.of(context)
    timeout_ms = contexts.milliseconds(timeout_s)
    given = parts.even("all_to_all", x, context, moves=True)
    shape = given.shapes[0]
    if given.is_list:
        received, target = given.new((context.world_size, *shape))
        result: Any = given.buffer.kind.rows(received)
    else:
        received, target = given.new((context.world_size * shape[0], *shape[1:]))
        result = received
    call = Call(_ALL_TO_ALL, given.place, target, given.dtype)
    return submit(
        context,
        call,
        timeout_ms,
        (given.keep, received),
        result,
        algorithm=algorithm,
        blocking=blocking,
    )


def _all_to_all_v(
    x: Any,
    input_split_sizes: Sequence[int] | None,
    output_split_sizes: Sequence[int] | None,
    context: CiuicContext | None,
    timeout_s: float | None,
    algorithm: str | None,
    *,
    blocking: bool,
) -> Handle:
    context = contexts.of(context)
    budget = Budget(context, timeout_s)
    timeout_ms = budget.whole_ms
    given = parts.uneven(
        "all_to_all_v", x, input_split_sizes, "input_split_sizes", context, moves=True
    )
    rest = given.trailing("all_to_all_v")
    if output_split_sizes is None:
        rows = submission.exchange_counts(context, [shape[0] for shape in given.shapes], budget)
        timeout_ms = budget.left_ms()
    else:
        rows = check_counts("all_to_all_v: output_split_sizes", output_split_sizes, context)
    received, target = given.new((sum(rows), *rest))
    unit = submission.elements(rest) * given.buffer.unit
    call = Call(
        _ALL_TO_ALL,
        given.place,
        target,
        given.dtype,
        uneven=True,
        input_counts=given.counts(),
        output_counts=[unit * count for count in rows],
    )
    result = submission.slices(received, rows) if given.is_list else received
    return submit(
        context,
        call,
        timeout_ms,
        (given.keep, received),
        result,
        algorithm=algorithm,
        blocking=blocking,
    )
