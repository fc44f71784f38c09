# SPDX-License-Identifier: Apache-2.0
"""Tensors in memory that the ranks of a host can read where they lie."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ciuic.errors import InvalidArgumentError

if TYPE_CHECKING:
    from ciuic.context import CiuicContext


def empty(shape: int | Iterable[int], dtype: Any, context: CiuicContext | None = None) -> Any:
    """A new array, not initialised, that the other ranks of this host can read where it lies.

    Operations on it, or on a part of it, do what they do on every array, with the same results; but
    a large contiguous one is read by the peers from its own memory, not from copies of it. So this
    is for what travels often: gradients, buckets, activations.

    Args:
        shape: A number, or one for each dimension.
        dtype: Of PyTorch, for a tensor; or what NumPy takes as one, for an array. Any that the
            operations move.
        context: The group that uses it; others of this process do, too. ``None`` takes the
            process's default context.

    Returns:
        A tensor of PyTorch or an array of NumPy, contiguous, 64-byte aligned. Its memory is given
        back with it and its views, also after the context is closed;
        :meth:`CiuicContext.memory_usage` counts it. Its content is undefined once an operation on
        it has failed. A forked child shares it with its parent: each sees what the other writes.

    Raises:
        ValueError: A negative size, or a dtype whose elements hold addresses.
        ciuic.ResourceError: Not so much memory.
        ciuic.ClosedError: The context is closed, or belongs to the parent of this process.

    Source: ``Communicator::allocate``.
    """
    from ciuic.context import of

    sizes = _sizes(shape)
    allocate: Any = of(context)._native.allocate  # what it gives has the buffer protocol
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dtype, torch.dtype):
        if dtype in (torch.quint4x2, torch.quint2x4, torch.quint8, torch.qint8, torch.qint32):
            raise InvalidArgumentError(
                f"empty: {dtype} has scales beside its elements; take an integer one"
            )
        count = math.prod(sizes) * dtype.itemsize
        data = torch.frombuffer(allocate(max(count, 1)), dtype=torch.uint8)
        return data[:count].view(dtype).view(sizes)
    import numpy

    kind = numpy.dtype(dtype)
    if kind.hasobject:
        raise InvalidArgumentError(
            f"empty: elements of {kind} are addresses of objects, which cannot travel"
        )
    count = math.prod(sizes) * kind.itemsize
    return numpy.ndarray(sizes, kind, allocate(max(count, 1)))


def _sizes(shape: int | Iterable[int]) -> tuple[int, ...]:
    try:
        if isinstance(shape, Iterable):
            sizes = tuple(operator.index(size) for size in shape)
        else:
            sizes = (operator.index(shape),)
    except TypeError:
        raise InvalidArgumentError(
            f"empty: shape={shape!r} is no number, nor a list of them"
        ) from None
    if any(size < 0 for size in sizes):
        raise InvalidArgumentError(f"empty: shape={shape!r} has a negative size")
    return sizes
