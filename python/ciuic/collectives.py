# SPDX-License-Identifier: Apache-2.0
"""The operations that reduce, and the barrier. All ranks call the same ones in the same order.

Each comes as a function that blocks and as one that ends in ``_async`` and returns a
:class:`~ciuic.handles.Handle`. The methods of :class:`~ciuic.CiuicContext` are the same functions.
What moves data is in :mod:`ciuic.gathering` and :mod:`ciuic.scattering`, what two ranks send each
other in :mod:`ciuic.messages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ciuic import _native, buckets, buffers, collecting, parts
from ciuic import context as contexts
from ciuic.buffers import Buffer
from ciuic.dtypes import ReduceOp, check_reducible, op_code
from ciuic.errors import InvalidArgumentError, UnsupportedError
from ciuic.handles import Handle
from ciuic.plan import registry
from ciuic.submission import NOWHERE, Call, arrays_of, by, check_rank, refuse, submit

if TYPE_CHECKING:
    from ciuic.context import CiuicContext

_direct_place = buffers.direct_place
_SUM = ReduceOp.SUM
_CODE_OF_OP = {op: int(op) for op in ReduceOp if op.name.lower() in _native.op_codes}

_REDUCE = _native.operation_codes["reduce"]
_REDUCE_SCATTER = _native.operation_codes["reduce_scatter"]
_BARRIER = _native.operation_codes["barrier"]

_BUCKETS_IN_FLIGHT = 4  # of a blocking call: bounds the copies that it holds


def all_reduce(
    x: Any,
    op: ReduceOp = _SUM,
    context: CiuicContext | None = None,
    wire: str | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Any:
    """Reduce ``x`` element by element over all ranks, in place; every rank gets the same bits.

    All ranks call it with the same shape, dtype and ``op``. It returns when the result is in ``x``;
    :func:`all_reduce_async` returns at once.

    Args:
        x: ``[...]``, any strides, any dtype of :mod:`ciuic.dtypes`, on the CPU (PyTorch, NumPy,
            anything with DLPack), or an iterable of such arrays of one dtype, which travel merged.
            Of ``model.parameters()`` the gradients are reduced: one that no rank has is skipped,
            one that some ranks lack counts as zeros there. An array named twice is reduced once;
            arrays that overlap in part are refused where they do not travel as one.
        op: ``SUM`` is not divided by the number of ranks, ``AVG`` is; docs/dtypes.md says which
            dtype has which. 16-bit and 8-bit floats are added in float32, rounded once within a
            host and once a hop between hosts. Integers wrap around in their own dtype, also before
            ``AVG`` divides (:class:`ReduceOp`).
        context: The group of ranks. ``None`` takes the process's default context.
        wire: Codec for what crosses the network. None of them is there yet: ``None``.
        timeout_s: Seconds from this call to the result. ``None`` takes the context's.
        algorithm: By name, alike on all ranks: one of the library's (``ciuic plan``), or of
            :mod:`ciuic.plan`'s. ``None``: the library's choice.

    Returns:
        ``x``.

    Raises:
        ValueError: Shape, dtype, device or ``op`` cannot be reduced, or ``x`` cannot be written.
            Nothing was sent.
        ciuic.MismatchError, ciuic.TimeoutError, ciuic.PeerLostError, ciuic.AbortedError: ``x`` is
            undefined, and ``context`` takes no more work.

    Cost: a large array sends ``2 (n - 1) / n * nbytes`` per rank. Strides, and merging, cost a copy
    each way. Parameters cost a blocking exchange of two bytes each first.
    Source: ``Communicator::all_reduce`` in include/ciuic/communicator.h.
    """
    if context is None:
        context = contexts.default_context()
    direct = _direct_place.get(type(x))
    if direct is not None and wire is None and timeout_s is None:
        place = direct(x)
        op_number = _CODE_OF_OP.get(op)
        if place is not None and op_number is not None:
            if algorithm is not None:
                _start(context, place, op_number, -1, None, algorithm)
                return x
            address, count, dtype = place
            context._native.all_reduce(address, address, count, dtype, op_number, -1, None)
            return x
    return _all_reduce(x, op, context, wire, timeout_s, algorithm, blocking=True).wait()


def all_reduce_async(
    x: Any,
    op: ReduceOp = _SUM,
    context: CiuicContext | None = None,
    wire: str | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Handle:
    """Start what :func:`all_reduce` does, and return at once.

    Until ``wait()`` of the handle, or :func:`all_reduce_wait`, ``x`` is neither read nor written by
    the caller. Strided and merged arrays get their results in ``wait()``.

    Raises:
        ValueError: As :func:`all_reduce`; nothing was sent. What goes wrong later, ``wait()``
        raises.
    """
    context = contexts.of(context)
    direct = _direct_place.get(type(x))
    if direct is not None and wire is None and timeout_s is None:
        place = direct(x)
        op_number = _CODE_OF_OP.get(op)
        if place is not None and op_number is not None:
            if algorithm is not None:
                return Handle((_start(context, place, op_number, -1, x, algorithm),), x)
            address, count, dtype = place
            work = context._native.all_reduce(address, address, count, dtype, op_number, -1, x)
            return Handle((work,), x)
    return _all_reduce(x, op, context, wire, timeout_s, algorithm, blocking=False)


def all_reduce_wait(handle: Handle) -> Any:
    """Wait for :func:`all_reduce_async`; the same as ``handle.wait()``."""
    return handle.wait()


def reduce(
    x: Any,
    dst: int = 0,
    op: ReduceOp = _SUM,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Any:
    """Reduce ``x`` over all ranks to rank ``dst``; ``x`` itself is left as it was.

    Args:
        x: ``[...]``, as for :func:`all_reduce`, but one array; may be read-only.
        dst: Rank that gets the result.
        op, context, timeout_s, algorithm: As for :func:`all_reduce`.

    Returns:
        On ``dst`` a new array of ``x``'s shape and dtype, elsewhere ``None``.

    Raises:
        As :func:`all_reduce`.

    Cost: ``nbytes`` sent per rank at most. Source: ``Communicator::reduce``.
    """
    return _reduce(x, dst, op, context, timeout_s, algorithm, blocking=True).wait()


def reduce_async(
    x: Any,
    dst: int = 0,
    op: ReduceOp = _SUM,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Handle:
    """Start what :func:`reduce` does, and return at once; ``wait()`` gives its result."""
    return _reduce(x, dst, op, context, timeout_s, algorithm, blocking=False)


def reduce_scatter(
    x: Any,
    op: ReduceOp = _SUM,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Any:
    """Reduce ``x`` over all ranks, and give each rank its part of the result.

    Args:
        x: ``[world_size * k, ...]``, one array, of which rank ``r`` gets the rows ``r * k`` to
            ``(r + 1) * k``; or an iterable of ``world_size`` arrays of one shape and dtype, of
            which it gets the ``r``-th. Shapes and dtype are alike on all ranks; may be read-only,
            is left as it was.
        op, context, timeout_s, algorithm: As for :func:`all_reduce`.

    Returns:
        A new array, ``[k, ...]``, or of the shape of the arrays in the list.

    Raises:
        As :func:`all_reduce`; ValueError also where the ranks cannot share the rows evenly.

    Cost: ``(n - 1) / n * nbytes`` sent per rank. A list is copied together first, unless its arrays
    lie one after the other.
    Source: ``Communicator::reduce_scatter``.
    """
    return _reduce_scatter(x, op, context, timeout_s, algorithm, blocking=True).wait()


def reduce_scatter_async(
    x: Any,
    op: ReduceOp = _SUM,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Handle:
    """Start what :func:`reduce_scatter` does, and return at once; ``wait()`` gives its result."""
    return _reduce_scatter(x, op, context, timeout_s, algorithm, blocking=False)


def reduce_scatter_v(
    x: Any,
    op: ReduceOp = _SUM,
    context: CiuicContext | None = None,
    *,
    counts: Sequence[int] | None = None,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Any:
    """Reduce ``x`` over all ranks, and give each rank its part, which may differ in size.

    Args:
        x: An iterable of ``world_size`` arrays of one dtype and any shapes, of which rank ``r``
            gets the ``r``-th; or one array ``[rows, ...]`` with ``counts``. The ``r``-th shape is
            the same on all ranks. May be read-only, is left as it was.
        counts: Rows for each rank, of one array; together all that it has. Zeros are fine.
        op, context, timeout_s, algorithm: As for :func:`all_reduce`.

    Returns:
        A new array of the shape of this rank's part.

    Raises:
        As :func:`all_reduce`; ciuic.MismatchError also where ranks differ in the counts.

    Cost: what the other ranks' parts have is sent by each rank, once. A list is copied together
    first, unless its arrays lie one after the other.
    Source: ``Communicator::reduce_scatter_v``.
    """
    return _reduce_scatter_v(x, op, context, counts, timeout_s, algorithm, blocking=True).wait()


def reduce_scatter_v_async(
    x: Any,
    op: ReduceOp = _SUM,
    context: CiuicContext | None = None,
    *,
    counts: Sequence[int] | None = None,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Handle:
    """Start what :func:`reduce_scatter_v` does, and return at once; ``wait()`` gives its result."""
    return _reduce_scatter_v(x, op, context, counts, timeout_s, algorithm, blocking=False)


def barrier(
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> None:
    """Return when all ranks have called it.

    Cost: about as much as an all-reduce of 8 bytes. Source: ``Communicator::barrier``.
    """
    context = contexts.of(context)
    call = by(Call(_BARRIER), context, algorithm)
    context._native.submit((call,), contexts.milliseconds(timeout_s), None)


def barrier_async(
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
    algorithm: str | None = None,
) -> Handle:
    """Start what :func:`barrier` does, and return at once."""
    context = contexts.of(context)
    timeout_ms = contexts.milliseconds(timeout_s)
    call = Call(_BARRIER)
    return submit(context, call, timeout_ms, (), None, algorithm=algorithm, blocking=False)


def _reduce(
    x: Any,
    dst: int,
    op: ReduceOp,
    context: CiuicContext | None,
    timeout_s: float | None,
    algorithm: str | None,
    *,
    blocking: bool,
) -> Handle:
    context = contexts.of(context)
    timeout_ms = contexts.milliseconds(timeout_s)
    op_number = op_code(op)
    dst = check_rank("dst", dst, context)
    buffer = Buffer(x, writes=False)
    check_reducible(buffer.code, op_number)
    address, count, dtype = buffer.place()
    result = None
    target = NOWHERE
    if context.rank == dst:
        result = buffer.empty(buffer.kind.shape(buffer.array))
        target = (buffer.kind.address(result, True), count)
    call = Call(_REDUCE, (address, count), target, dtype, op_number, dst)
    return submit(
        context,
        call,
        timeout_ms,
        (x, buffer, result),
        result,
        algorithm=algorithm,
        blocking=blocking,
    )


def _reduce_scatter(
    x: Any,
    op: ReduceOp,
    context: CiuicContext | None,
    timeout_s: float | None,
    algorithm: str | None,
    *,
    blocking: bool,
) -> Handle:
    context = contexts.of(context)
    timeout_ms = contexts.milliseconds(timeout_s)
    op_number = op_code(op)
    given = parts.even("reduce_scatter", x, context)
    check_reducible(given.dtype, op_number)
    result, target = given.new(given.shapes[context.rank])
    call = Call(_REDUCE_SCATTER, given.place, target, given.dtype, op_number)
    return submit(
        context,
        call,
        timeout_ms,
        (given.keep, result),
        result,
        algorithm=algorithm,
        blocking=blocking,
    )


def _reduce_scatter_v(
    x: Any,
    op: ReduceOp,
    context: CiuicContext | None,
    counts: Sequence[int] | None,
    timeout_s: float | None,
    algorithm: str | None,
    *,
    blocking: bool,
) -> Handle:
    context = contexts.of(context)
    timeout_ms = contexts.milliseconds(timeout_s)
    op_number = op_code(op)
    given = parts.uneven("reduce_scatter_v", x, counts, "counts", context)
    check_reducible(given.dtype, op_number)
    result, target = given.new(given.shapes[context.rank])
    call = Call(
        _REDUCE_SCATTER,
        given.place,
        target,
        given.dtype,
        op_number,
        uneven=True,
        input_counts=given.counts(),
    )
    return submit(
        context,
        call,
        timeout_ms,
        (given.keep, result),
        result,
        algorithm=algorithm,
        blocking=blocking,
    )


def _all_reduce(
    x: Any,
    op: ReduceOp,
    context: CiuicContext,
    wire: str | None,
    timeout_s: float | None,
    algorithm: str | None,
    *,
    blocking: bool,
) -> Handle:
    timeout_ms = contexts.milliseconds(timeout_s)
    op_number = op_code(op)
    if wire is not None:
        raise UnsupportedError(
            f"wire={wire!r}: codecs for the wire are not there yet; leave it out. Nothing was sent."
        )
    if buffers.parameters_among((x,)):
        raise InvalidArgumentError(
            "one parameter by itself: say x.grad or x.data, or give an iterable of parameters for "
            "their gradients. Nothing was sent."
        )
    if not buffers.is_array(x):
        return _all_reduce_merged(x, op_number, context, timeout_ms, algorithm, blocking)
    buffer = Buffer(x, writes=True)
    check_reducible(buffer.code, op_number)
    keep = None if blocking else (x, buffer)
    work = _start(context, buffer.place(), op_number, timeout_ms, keep, algorithm)
    return Handle(() if blocking else (work,), x, buffer.finish)


def _start(
    context: CiuicContext,
    place: buffers.Place,
    op_number: int,
    timeout_ms: int,
    keep: Any,
    algorithm: str | None,
    wait_follows: bool = False,
) -> Any:
    """Starts an all-reduce in place, or makes it where ``keep`` is ``None``."""
    address, count, dtype = place
    if algorithm is None:
        return context._native.all_reduce(
            address, address, count, dtype, op_number, timeout_ms, keep, wait_follows
        )
    registry.add_to(context, "all_reduce", algorithm, 0)
    return context._native.all_reduce_by(
        algorithm, address, address, count, dtype, op_number, timeout_ms, keep, wait_follows
    )


def _all_reduce_merged(
    x: Any,
    op_number: int,
    context: CiuicContext,
    timeout_ms: int,
    algorithm: str | None,
    blocking: bool,
) -> Handle:
    arrays = buckets.unique(arrays_of(x))
    after: list[Any] = []
    of_parameters = buffers.parameters_among(arrays) > 0
    if of_parameters:
        if collecting.is_here(context):
            raise refuse(
                "parameters inside coalesce() or persistent(): the ranks would have to ask each "
                "other first which gradients there are; give the gradients themselves"
            )
        gradients = buckets.Gradients(arrays, context._native, timeout_ms)
        arrays = gradients.arrays
        after.append(gradients)
    merged = buckets.Merged(arrays, mixed_dtypes=of_parameters)
    merged.check_apart()
    after.insert(0, merged)
    for group in merged.groups:
        check_reducible(group[0][2], op_number)

    packed: list[buckets.Bucket] = []
    works: list[_native.Work] = []
    for group in merged.groups:
        bucket = buckets.Bucket(group)
        keep = (arrays, bucket, merged)
        works.append(
            _start(context, bucket.place, op_number, timeout_ms, keep, algorithm, blocking)
        )
        packed.append(bucket)
        if blocking and len(works) > _BUCKETS_IN_FLIGHT:
            ended = len(works) - _BUCKETS_IN_FLIGHT - 1
            works[ended].wait()
            packed[ended].unpack()
    return Handle(works, x, buckets.finisher(packed, *after))
