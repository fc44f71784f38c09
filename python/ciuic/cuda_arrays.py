# SPDX-License-Identifier: Apache-2.0
"""Arrays of libraries other than PyTorch on GPUs, by DLPack and the array API standard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ciuic import _native
from ciuic.array_kind import refuse


class CudaArrays:
    """Arrays of other libraries on CUDA devices, by DLPack and the array API standard.

    What was put into the device's legacy default stream before the call is done when they are read;
    the library's own exchange (``__dlpack__``) sees to that.
    """

    name = "dlpack"

    def check(self, x: Any, writes: bool) -> int | None:
        view = _cuda_view(x)
        if writes and not view.writable:
            raise refuse("a read-only array cannot be written", "give a copy")
        if not self.is_contiguous(x):
            raise refuse(
                f"an array ({type(x).__name__}) on a GPU that is not contiguous", "give a copy"
            )
        if view.itemsize == 0:
            raise refuse(
                f"an array ({type(x).__name__}) whose elements are no whole bytes",
                "give a view of its bytes",
            )
        return view.code

    def device(self, x: Any) -> int:
        return _cuda_view(x).device

    def count(self, x: Any) -> int:
        return math.prod(_cuda_view(x).shape)

    def itemsize(self, x: Any) -> int:
        return _cuda_view(x).itemsize

    def shape(self, x: Any) -> tuple[int, ...]:
        return tuple(_cuda_view(x).shape)

    def is_contiguous(self, x: Any) -> bool:
        view = _cuda_view(x)
        expected = 1
        for length, stride in zip(reversed(view.shape), reversed(view.strides), strict=True):
            if length > 1 and stride != expected:
                return 0 in view.shape
            expected *= length
        return True

    def address(self, x: Any, writes: bool) -> int:
        return _cuda_view(x).address

    def empty(self, x: Any, shape: Sequence[int]) -> Any:
        return x.__array_namespace__().empty(tuple(shape), dtype=x.dtype, device=x.device)

    def copy(self, target: Any, source: Any) -> None:
        target[...] = source

    def rows(self, x: Any) -> list[Any]:
        return [x[i, ...] for i in range(self.shape(x)[0])]


class _CudaView(NamedTuple):
    """What the core says of an array on a GPU; strides in elements."""

    address: int
    shape: list[int]
    strides: list[int]
    itemsize: int
    code: int | None
    device: int
    writable: bool


def _cuda_view(x: Any) -> _CudaView:
    return _CudaView(*_native.cuda_view(x))
