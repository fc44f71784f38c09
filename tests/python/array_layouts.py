# SPDX-License-Identifier: Apache-2.0
"""Arrays of any layout, NumPy's and PyTorch's, within memory that must stay as it is."""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy
import torch
from hypothesis import strategies as st

RANKS = 3
FILL = 77  # what lies between the elements, and must stay
DTYPES = {
    "float32": numpy.float32,
    "int64": numpy.int64,
    "uint8": numpy.uint8,
    "bfloat16": ml_dtypes.bfloat16,
}


def as_numpy(x: Any) -> numpy.ndarray:
    if isinstance(x, torch.Tensor) and x.dtype == torch.bfloat16:
        return x.contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return numpy.asarray(x)


@dataclass
class Axis:
    """How one axis lies in memory.

    Attributes:
        step: Elements of the base from one to the next; negative: backwards; 0: one element for
            all.
        before: Elements of the base in front.
        after: And behind.
    """

    step: int
    before: int
    after: int


@dataclass
class Layout:
    """One rank's array: whose it is, how each axis lies, and their order in memory."""

    library: str
    axes: list[Axis]
    order: list[int]

    def overlaps(self, shape: tuple[int, ...]) -> bool:
        return 0 not in shape and any(
            axis.step == 0 and length > 1 for axis, length in zip(self.axes, shape, strict=True)
        )

    def make(self, values: numpy.ndarray) -> "Laid":
        """An array of this layout with these values; of those that share an element, one."""
        lengths = values.shape
        reach = [abs(axis.step) * max(0, n - 1) for axis, n in zip(self.axes, lengths, strict=True)]
        extents = [
            axis.before + far + 1 + axis.after for axis, far in zip(self.axes, reach, strict=True)
        ]
        strides = [0] * len(lengths)
        size = 1
        for i in reversed(self.order):
            strides[i] = size
            size *= extents[i]
        offset = 0
        for i, axis in enumerate(self.axes):
            offset += strides[i] * (axis.before + (reach[i] if axis.step < 0 else 0))
            strides[i] *= axis.step
        memory = numpy.full(size, FILL, dtype=values.dtype)
        laid = Laid(memory, self.library, lengths, strides, offset)
        laid.numpy[...] = values
        return laid


class Laid:
    """An array within its memory.

    Attributes:
        array: Of the library that was asked for.
        numpy: The same elements as NumPy's.
    """

    def __init__(
        self,
        memory: numpy.ndarray,
        library: str,
        shape: tuple[int, ...],
        strides: list[int],
        offset: int,
    ) -> None:
        self._memory = memory
        self._is_element = numpy.zeros(memory.size, dtype=bool)
        view_of(self._is_element, shape, strides, offset)[...] = True
        self.numpy = view_of(memory, shape, strides, offset)
        self.array: Any = self.numpy
        if library == "torch":
            self.array = as_torch(memory).as_strided(shape, strides, offset)

    def values(self) -> numpy.ndarray:
        return self.numpy.copy()

    def surroundings_stay(self) -> bool:
        """Whether what is no element is as it was."""
        return bool((self._memory[~self._is_element].astype(numpy.float64) == FILL).all())


def view_of(
    memory: numpy.ndarray, shape: tuple[int, ...], strides: list[int], offset: int
) -> numpy.ndarray:
    in_bytes = [stride * memory.itemsize for stride in strides]
    return numpy.lib.stride_tricks.as_strided(memory[offset:], shape, in_bytes)


def as_torch(memory: numpy.ndarray) -> torch.Tensor:
    if memory.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(memory.view(numpy.uint16)).view(torch.bfloat16)
    return torch.from_numpy(memory)


@st.composite
def layouts(draw: st.DrawFn, axes: int, expand: bool) -> Layout:
    library = draw(st.sampled_from(["numpy", "torch"]))
    steps = [1, 2, 3] + [-1, -2] * (library == "numpy") + [0] * expand
    return Layout(
        library,
        [
            Axis(
                draw(st.sampled_from(steps)),
                draw(st.integers(0, 2)),
                draw(st.integers(0, 2)),
            )
            for _ in range(axes)
        ],
        list(draw(st.permutations(range(axes)))),
    )
