# SPDX-License-Identifier: Apache-2.0
"""What a call cuts into a part for each rank: one array, by its rows, or an array for each rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ciuic import buckets, buffers
from ciuic.buffers import Buffer
from ciuic.submission import arrays_of, check_counts, elements, refuse, rows_of

if TYPE_CHECKING:
    from ciuic.context import CiuicContext

Shape = tuple[int, ...]


class Parts:
    """The parts in rank order, in one piece of memory.

    Attributes:
        buffer: An array of them, by whose kind and dtype new ones are made.
        place: Address and count of all of them together, as the core is told them.
        dtype: Number of the dtype, likewise.
        shapes: Of each part.
        is_list: Whether the caller gave an array for each rank.
        keep: What must live until the operation has ended.
    """

    __slots__ = ("buffer", "dtype", "is_list", "keep", "place", "shapes")

    def __init__(
        self,
        buffer: Buffer,
        place: buffers.Place,
        shapes: Sequence[Shape],
        is_list: bool,
        keep: Any,
    ) -> None:
        self.buffer = buffer
        self.place = place[:2]
        self.dtype = place[2]
        self.shapes = shapes
        self.is_list = is_list
        self.keep = keep

    def counts(self) -> list[int]:
        """Elements of each part, as the core is told them."""
        return [elements(shape) * self.buffer.unit for shape in self.shapes]

    def new(self, shape: Shape) -> tuple[Any, tuple[int, int]]:
        """A new array of this kind and dtype, with its address and count."""
        array = self.buffer.empty(shape)
        count = elements(shape) * self.buffer.unit
        return array, (self.buffer.kind.address(array, True), count)

    def trailing(self, name: str) -> Shape:
        """The dimensions after the first one, in which all parts must agree."""
        for rank, shape in enumerate(self.shapes):
            if not shape:
                raise refuse(f"{name}: the array for rank {rank} has no dimensions, hence no rows")
            if shape[1:] != self.shapes[0][1:]:
                raise refuse(
                    f"{name}: the array for rank {rank} has shape {shape}, that for rank 0 "
                    f"{self.shapes[0]}; they may differ in the first dimension alone"
                )
        return self.shapes[0][1:]


def even(name: str, x: Any, context: CiuicContext, moves: bool = False) -> Parts:
    """An array whose rows the ranks share evenly, or an array for each rank, all of one shape.

    ``moves``: the operation only moves data, and so takes any dtype.
    """
    size = context.world_size
    if buffers.is_array(x):
        buffer = Buffer(x, writes=False, moves=moves)
        rows = rows_of(name, buffer)
        if rows % size != 0:
            raise refuse(
                f"{name}: {size} ranks cannot share {rows} rows evenly; pad x, or take {name}_v"
            )
        shape = (rows // size, *buffer.kind.shape(buffer.array)[1:])
        return Parts(buffer, buffer.place(), [shape] * size, False, (x, buffer))
    parts = _of_list(name, x, context, moves)
    for rank, shape in enumerate(parts.shapes):
        if shape != parts.shapes[0]:
            raise refuse(
                f"{name}: the array for rank {rank} has shape {shape}, that for rank 0 "
                f"{parts.shapes[0]}; give all the same shape, or take {name}_v"
            )
    return parts


def rows(name: str, x: Any, context: CiuicContext) -> Parts:
    """An array that has a row for each rank."""
    size = context.world_size
    buffer = Buffer(x, writes=False, moves=True)
    if rows_of(name, buffer) != size:
        shape = buffer.kind.shape(buffer.array)
        raise refuse(f"{name}: an array of shape {shape}; give one row for each of {size} ranks")
    shape = buffer.kind.shape(buffer.array)[1:]
    return Parts(buffer, buffer.place(), [shape] * size, False, (x, buffer))


def uneven(
    name: str, x: Any, counts: Any, argument: str, context: CiuicContext, moves: bool = False
) -> Parts:
    """An array, of whose rows each rank gets as many as ``counts`` says, or an array for each."""
    if not buffers.is_array(x):
        if counts is not None:
            raise refuse(f"{name}: {argument} is for one array; of a list, the shapes say it")
        return _of_list(name, x, context, moves)
    if counts is None:
        raise refuse(
            f"{name}: one array, and no {argument}; say how many rows each rank gets, or give a "
            "list with an array for each rank"
        )
    counts = check_counts(f"{name}: {argument}", counts, context)
    buffer = Buffer(x, writes=False, moves=moves)
    rows = rows_of(name, buffer)
    if sum(counts) != rows:
        raise refuse(f"{name}: {argument}={counts} are {sum(counts)} rows, and x has {rows}")
    rest = buffer.kind.shape(buffer.array)[1:]
    shapes = [(count, *rest) for count in counts]
    return Parts(buffer, buffer.place(), shapes, False, (x, buffer))


def _of_list(name: str, x: Any, context: CiuicContext, moves: bool) -> Parts:
    arrays = arrays_of(x)
    size = context.world_size
    if len(arrays) != size:
        raise refuse(f"{name}: {len(arrays)} arrays; give one for each of the {size} ranks")
    given = [Buffer(each, writes=False, moves=moves) for each in arrays]
    for rank, buffer in enumerate(given):
        if buffer.dtype != given[0].dtype:
            raise refuse(
                f"{name}: the array for rank {rank} is {buffer.dtype}, that for rank 0 "
                f"{given[0].dtype}; give all the same dtype"
            )
        if buffer.device != given[0].device:
            raise refuse(
                f"{name}: the arrays for rank 0 and rank {rank} are on different devices; give "
                "all on one"
            )
    bucket = buckets.Bucket([buffer.place() for buffer in given])
    shapes = [buffer.kind.shape(buffer.array) for buffer in given]
    return Parts(given[0], bucket.place, shapes, True, (arrays, *given, bucket))
