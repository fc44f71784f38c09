# SPDX-License-Identifier: Apache-2.0
"""The collective operations. All ranks call the same ones in the same order.

Each comes as a function that blocks and as one that ends in ``_async`` and returns a
:class:`~ciuic.handles.Handle`. The methods of :class:`~ciuic.CiuicContext` are the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ciuic import _native, buckets, buffers
from ciuic import context as contexts
from ciuic.buffers import Buffer
from ciuic.dtypes import ReduceOp, check_reducible, op_code
from ciuic.errors import UnsupportedError
from ciuic.handles import Handle

if TYPE_CHECKING:
    from ciuic.context import CiuicContext

_direct_place = buffers.direct_place
_SUM = ReduceOp.SUM
_CODE_OF_OP = {op: int(op) for op in ReduceOp if op.name.lower() in _native.op_codes}

_BUCKETS_IN_FLIGHT = 4  # of a blocking call: bounds the copies that it holds


def all_reduce(
    x: Any,
    op: ReduceOp = _SUM,
    context: CiuicContext | None = None,
    wire: str | None = None,
    *,
    timeout_s: float | None = None,
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
        op: ``SUM`` is not divided by the number of ranks, ``AVG`` is. 16-bit floats are added in
            float32, rounded once within a host and once a hop between hosts. Integers wrap around
            in their own dtype, also before ``AVG`` divides (:class:`ReduceOp`).
        context: The group of ranks. ``None`` takes the process's default context.
        wire: Codec for what crosses the network. None of them is there yet: ``None``.
        timeout_s: Seconds from this call to the result. ``None`` takes the context's.

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
            address, count, dtype = place
            context._native.all_reduce(address, address, count, dtype, op_number, -1, None)
            return x
    return _all_reduce(x, op, context, wire, timeout_s, blocking=True).wait()


def all_reduce_async(
    x: Any,
    op: ReduceOp = _SUM,
    context: CiuicContext | None = None,
    wire: str | None = None,
    *,
    timeout_s: float | None = None,
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
            address, count, dtype = place
            work = context._native.all_reduce(address, address, count, dtype, op_number, -1, x)
            return Handle((work,), x)
    return _all_reduce(x, op, context, wire, timeout_s, blocking=False)


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
) -> Any:
    """Reduce ``x`` over all ranks to rank ``dst``; ``x`` itself is left as it was.

    Args:
        x: ``[...]``, as for :func:`all_reduce`, but one array; may be read-only.
        dst: Rank that gets the result.
        op, context, timeout_s: As for :func:`all_reduce`.

    Returns:
        On ``dst`` a new array of ``x``'s shape and dtype, elsewhere ``None``.

    Raises:
        As :func:`all_reduce`.

    Cost: ``nbytes`` sent per rank at most. Source: ``Communicator::reduce``.
    """
    return _reduce(x, dst, op, context, timeout_s, blocking=True).wait()


def reduce_async(
    x: Any,
    dst: int = 0,
    op: ReduceOp = _SUM,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
) -> Handle:
    """Start what :func:`reduce` does, and return at once; ``wait()`` gives its result."""
    return _reduce(x, dst, op, context, timeout_s, blocking=False)


def broadcast(
    x: Any, src: int = 0, context: CiuicContext | None = None, *, timeout_s: float | None = None
) -> Any:
    """Overwrite ``x`` with that of rank ``src``.

    Args:
        x: ``[...]``, as for :func:`all_reduce`, or an iterable of arrays of one dtype, which travel
            merged. Of parameters it is the values that are sent.
        src: Rank whose values all get.
        context, timeout_s: As for :func:`all_reduce`.

    Returns:
        ``x``.

    Raises:
        As :func:`all_reduce`.

    Cost: ``nbytes`` sent per rank at most. Source: ``Communicator::broadcast``.
    """
    return _broadcast(x, src, context, timeout_s, blocking=True).wait()


def broadcast_async(
    x: Any, src: int = 0, context: CiuicContext | None = None, *, timeout_s: float | None = None
) -> Handle:
    """Start what :func:`broadcast` does, and return at once."""
    return _broadcast(x, src, context, timeout_s, blocking=False)


def all_gather(
    x: Any, context: CiuicContext | None = None, *, timeout_s: float | None = None
) -> list[Any]:
    """Gather ``x`` of every rank on every rank.

    Args:
        x: ``[...]``, one array, of the same shape and dtype on all ranks; may be read-only.
        context, timeout_s: As for :func:`all_reduce`.

    Returns:
        A list of ``world_size`` new arrays of ``x``'s shape and dtype, in rank order. They share
        one block of memory, without overlap.

    Raises:
        As :func:`all_reduce`.

    Cost: ``(n - 1) * nbytes`` sent per rank. Source: ``Communicator::all_gather``.
    """
    result: list[Any] = _all_gather(x, context, timeout_s, blocking=True).wait()
    return result


def all_gather_async(
    x: Any, context: CiuicContext | None = None, *, timeout_s: float | None = None
) -> Handle:
    """Start what :func:`all_gather` does, and return at once; ``wait()`` gives its result."""
    return _all_gather(x, context, timeout_s, blocking=False)


def barrier(context: CiuicContext | None = None, *, timeout_s: float | None = None) -> None:
    """Return when all ranks have called it."""
    contexts.of(context)._native.barrier(contexts.milliseconds(timeout_s), None)


def barrier_async(context: CiuicContext | None = None, *, timeout_s: float | None = None) -> Handle:
    """Start what :func:`barrier` does, and return at once."""
    work = contexts.of(context)._native.barrier(contexts.milliseconds(timeout_s), ())
    return Handle((work,), None)


def _reduce(
    x: Any,
    dst: int,
    op: ReduceOp,
    context: CiuicContext | None,
    timeout_s: float | None,
    *,
    blocking: bool,
) -> Handle:
    context = contexts.of(context)
    timeout_ms = contexts.milliseconds(timeout_s)
    op_number = op_code(op)
    _check_rank("dst", dst, context)
    buffer = Buffer(x, writes=False)
    check_reducible(buffer.code, op_number)
    address, count, dtype = buffer.place()
    result = None
    target = 0
    if context.rank == dst:
        result = buffer.empty(buffer.kind.shape(buffer.array))
        target = buffer.kind.address(result, True)
    work = context._native.reduce(
        address, target, count, dtype, op_number, dst, timeout_ms, (x, buffer, result), blocking
    )
    return Handle((work,), result)


def _broadcast(
    x: Any,
    src: int,
    context: CiuicContext | None,
    timeout_s: float | None,
    *,
    blocking: bool,
) -> Handle:
    context = contexts.of(context)
    timeout_ms = contexts.milliseconds(timeout_s)
    _check_rank("src", src, context)
    if not buffers.is_array(x):
        arrays = buckets.unique(_arrays_of(x))
        merged = buckets.Merged(arrays, mixed_dtypes=buffers.parameters_among(arrays) > 0)
        packed = [buckets.Bucket(group) for group in merged.groups]
        works = [
            context._native.broadcast(
                *bucket.place, src, timeout_ms, (arrays, bucket, merged), blocking
            )
            for bucket in packed
        ]
        return Handle(works, x, _finisher(packed, merged))
    buffer = Buffer(x, writes=True)
    work = context._native.broadcast(*buffer.place(), src, timeout_ms, (x, buffer), blocking)
    return Handle((work,), x, buffer.finish)


def _all_gather(
    x: Any, context: CiuicContext | None, timeout_s: float | None, *, blocking: bool
) -> Handle:
    context = contexts.of(context)
    timeout_ms = contexts.milliseconds(timeout_s)
    buffer = Buffer(x, writes=False)
    address, count, dtype = buffer.place()
    gathered = buffer.empty((context.world_size, *buffer.kind.shape(buffer.array)))
    target = buffer.kind.address(gathered, True)
    work = context._native.all_gather(
        address, target, count, dtype, timeout_ms, (x, buffer, gathered), blocking
    )
    return Handle((work,), buffer.kind.rows(gathered))


def _check_rank(name: str, rank: int, context: CiuicContext) -> None:
    if not 0 <= rank < context.world_size:
        raise ValueError(
            f"{name}={rank} is no rank; there are 0 to {context.world_size - 1}. Nothing was sent."
        )


def _arrays_of(x: Any) -> list[Any]:
    if not isinstance(x, Iterable):
        raise ValueError(
            f"{type(x).__name__} is neither an array nor an iterable of arrays. Nothing was sent."
        )
    return list(x)


def _finisher(packed: list[buckets.Bucket], *after: Any) -> Any:
    def finish() -> None:
        for bucket in packed:
            bucket.unpack()
        for part in after:
            part.finish()

    return finish


def _all_reduce(
    x: Any,
    op: ReduceOp,
    context: CiuicContext,
    wire: str | None,
    timeout_s: float | None,
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
        raise ValueError(
            "one parameter by itself: say x.grad or x.data, or give an iterable of parameters for "
            "their gradients. Nothing was sent."
        )
    if not buffers.is_array(x):
        return _all_reduce_merged(x, op_number, context, timeout_ms, blocking)
    buffer = Buffer(x, writes=True)
    check_reducible(buffer.code, op_number)
    address, count, dtype = buffer.place()
    keep = None if blocking else (x, buffer)
    work = context._native.all_reduce(address, address, count, dtype, op_number, timeout_ms, keep)
    return Handle(() if blocking else (work,), x, buffer.finish)


def _all_reduce_merged(
    x: Any, op_number: int, context: CiuicContext, timeout_ms: int, blocking: bool
) -> Handle:
    arrays = buckets.unique(_arrays_of(x))
    after: list[Any] = []
    of_parameters = buffers.parameters_among(arrays) > 0
    if of_parameters:
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
        address, count, dtype = bucket.place
        works.append(
            context._native.all_reduce(
                address,
                address,
                count,
                dtype,
                op_number,
                timeout_ms,
                (arrays, bucket, merged),
                blocking,
            )
        )
        packed.append(bucket)
        if blocking and len(works) > _BUCKETS_IN_FLIGHT:
            ended = len(works) - _BUCKETS_IN_FLIGHT - 1
            works[ended].wait()
            packed[ended].unpack()
    return Handle(works, x, _finisher(packed, *after))
