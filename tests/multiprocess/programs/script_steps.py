# SPDX-License-Identifier: Apache-2.0
"""The steps of scripted ranks: one operation each, its inputs, and what must come out.

A step is described alike on all ranks, by a dictionary: ``op`` and ``dtype``, ``reduce`` (SUM,
...), ``count`` and ``counts`` (rows, of each rank), ``root``, ``layout`` (a number, other on each
rank), ``list`` (arrays in a list), ``told`` (whether the ranks are told each other's rows),
``seed``.
"""

from collections.abc import Callable
from typing import Any

import numpy
from ciuic import CiuicContext, ReduceOp
from script_values import any_bits, dtype_named, laid_out, reduced, same, same_reduction, small

COLUMNS = 2
Spec = dict[str, Any]


class Step:
    """One operation of one rank.

    Attributes:
        calls: Names of methods, with their arguments.
    """

    def __init__(self, ctx: CiuicContext, spec: Spec, is_plain: bool) -> None:
        self.ctx = ctx
        self.rank, self.size = ctx.rank, ctx.world_size
        self.spec = spec
        self.what = f"{spec['op']} {spec}"
        self.dtype = dtype_named(spec["dtype"])
        self.root = spec["root"] % self.size
        self.rows = spec["count"]
        self.counts = [spec["counts"][r % 5] for r in range(self.size)]
        self.layout = 0 if is_plain else (spec["layout"] + ctx.rank) % 5
        self.is_list = spec["list"] and not is_plain
        self.round = 0
        self.shapes: Callable[[int], list[tuple[int, ...]]] = lambda rank: []  # of inputs()
        self.sources: list[numpy.ndarray] = []  # what fill() writes, from inputs()
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        getattr(self, "make_" + spec["op"])()

    def fill(self, number: int) -> None:
        """Puts this rank's inputs of a round in their places."""
        self.round = number
        for array, values in zip(self.sources, self.inputs(self.rank), strict=True):
            array[...] = values

    def check(self, results: list[Any]) -> None:
        getattr(self, "check_" + self.spec["op"])(results)

    # ---- helpers ----

    def inputs(self, rank: int) -> list[numpy.ndarray]:
        """Those of any rank."""
        make = small if self.spec["op"].startswith(("all_reduce", "reduce")) else any_bits
        shapes = self.shapes(rank)
        seed = (self.spec["seed"], self.round, rank)
        return [make((seed, i), shape, self.dtype) for i, shape in enumerate(shapes)]

    def takes(self, shapes: Callable[[int], list[tuple[int, ...]]]) -> list[numpy.ndarray]:
        """Makes the arrays of this rank's inputs."""
        self.shapes = shapes
        layouts = [self.layout + i if self.layout else 0 for i in range(len(shapes(self.rank)))]
        self.sources = [
            laid_out(shape, self.dtype, layout % 5)
            for shape, layout in zip(shapes(self.rank), layouts, strict=True)
        ]
        return self.sources

    def calls_one(self, name: str, *arguments: Any, **named: Any) -> None:
        self.calls.append((name, arguments, named))

    def even(self, rows: int) -> tuple[int, int]:
        return (rows, COLUMNS)

    @property
    def op(self) -> ReduceOp:
        return ReduceOp[self.spec["reduce"]]

    def total(self, index: int) -> numpy.ndarray:
        """The reduction of all ranks' inputs number ``index``."""
        return reduced(self.spec["reduce"], [self.inputs(r)[index] for r in range(self.size)])

    def reduces_to(self, got: numpy.ndarray, expected: numpy.ndarray) -> None:
        same_reduction(self.what, self.spec["reduce"], got, expected)

    def cut(self, array: numpy.ndarray, counts: list[int]) -> list[numpy.ndarray]:
        return numpy.split(array, numpy.cumsum(counts)[:-1])

    # ---- reductions ----

    def make_all_reduce(self) -> None:
        shapes = [self.even(self.rows), *([(3, 1), (self.rows,)] if self.is_list else [])]
        arrays = self.takes(lambda rank: shapes)
        self.calls_one("all_reduce", arrays if self.is_list else arrays[0], self.op)

    def check_all_reduce(self, results: list[Any]) -> None:
        for index, array in enumerate(self.sources):
            self.reduces_to(array, self.total(index))

    def make_reduce(self) -> None:
        (x,) = self.takes(lambda rank: [self.even(self.rows)])
        self.calls_one("reduce", x, self.root, self.op)

    def check_reduce(self, results: list[Any]) -> None:
        assert (results[0] is not None) == (self.rank == self.root), self.what
        if self.rank == self.root:
            self.reduces_to(results[0], self.total(0))
        same(self.what, self.sources[0], self.inputs(self.rank)[0])  # is as it was

    def make_reduce_scatter(self) -> None:
        number = self.size if self.is_list else 1
        shape = self.even(self.rows * self.size // number)
        arrays = self.takes(lambda rank: [shape] * number)
        self.calls_one("reduce_scatter", arrays if self.is_list else arrays[0], self.op)

    def check_reduce_scatter(self, results: list[Any]) -> None:
        if self.is_list:
            expected = self.total(self.rank)
        else:
            expected = self.cut(self.total(0), [self.rows] * self.size)[self.rank]
        self.reduces_to(results[0], expected)

    def make_reduce_scatter_v(self) -> None:
        counts = self.counts
        if self.is_list:
            arrays = self.takes(lambda rank: [self.even(count) for count in counts])
            self.calls_one("reduce_scatter_v", arrays, self.op)
        else:
            (x,) = self.takes(lambda rank: [self.even(sum(counts))])
            self.calls_one("reduce_scatter_v", x, self.op, counts=counts)

    def check_reduce_scatter_v(self, results: list[Any]) -> None:
        if self.is_list:
            expected = self.total(self.rank)
        else:
            expected = self.cut(self.total(0), self.counts)[self.rank]
        self.reduces_to(results[0], expected)

    # ---- what brings arrays together ----

    def make_all_gather(self) -> None:
        (x,) = self.takes(lambda rank: [self.even(self.rows)])
        self.calls_one("all_gather", x)

    def check_all_gather(self, results: list[Any]) -> None:
        for r, got in enumerate(results[0]):
            same(self.what, got, self.inputs(r)[0])

    def make_all_gather_v(self) -> None:
        (x,) = self.takes(lambda rank: [self.even(self.counts[rank])])
        self.calls_one("all_gather_v", x, self.counts if self.spec["told"] else None)

    check_all_gather_v = check_all_gather

    def make_gather(self) -> None:
        (x,) = self.takes(lambda rank: [self.even(self.rows)])
        self.calls_one("gather", x, self.root)

    def check_gather(self, results: list[Any]) -> None:
        assert (results[0] is not None) == (self.rank == self.root), self.what
        for r, got in enumerate(results[0] or []):
            same(self.what, got, self.inputs(r)[0])

    def make_gather_v(self) -> None:
        (x,) = self.takes(lambda rank: [self.even(self.counts[rank])])
        self.calls_one("gather_v", x, self.root, self.counts if self.spec["told"] else None)

    check_gather_v = check_gather

    # ---- what gives arrays to others ----

    def make_broadcast(self) -> None:
        shapes = [self.even(self.rows), *([(3, 1), (self.rows,)] if self.is_list else [])]
        arrays = self.takes(lambda rank: shapes)
        self.calls_one("broadcast", arrays if self.is_list else arrays[0], self.root)

    def check_broadcast(self, results: list[Any]) -> None:
        for got, expected in zip(self.sources, self.inputs(self.root), strict=True):
            same(self.what, got, expected)

    def make_scatter(self) -> None:
        number = self.size if self.is_list else 1
        shape = self.even(self.rows) if self.is_list else (self.size, self.rows, COLUMNS)
        arrays = self.takes(lambda rank: [shape] * number if rank == self.root else [])
        self.out = laid_out(self.even(self.rows), self.dtype, self.layout)
        given: Any = arrays if self.is_list else (arrays or [None])[0]
        self.calls_one("scatter", self.out, given, self.root)

    def check_scatter(self, results: list[Any]) -> None:
        given = self.inputs(self.root)
        same(self.what, self.out, given[self.rank] if self.is_list else given[0][self.rank])

    def make_scatter_v(self) -> None:
        """Of arrays that lie anywhere, or of parts of one."""
        shapes = [self.even(count) for count in self.counts]
        whole = [self.even(sum(self.counts))]
        given = shapes if self.is_list else whole
        arrays = self.takes(lambda rank: given if rank == self.root else [])
        if arrays and not self.is_list:
            arrays = self.cut(arrays[0], self.counts)
        self.out = laid_out(shapes[self.rank], self.dtype, self.layout)
        self.calls_one("scatter_v", self.out, arrays, self.root)

    def check_scatter_v(self, results: list[Any]) -> None:
        given = self.inputs(self.root)
        same(
            self.what,
            self.out,
            (given if self.is_list else self.cut(given[0], self.counts))[self.rank],
        )

    def make_all_to_all(self) -> None:
        number = self.size if self.is_list else 1
        shape = self.even(self.rows * self.size // number)
        arrays = self.takes(lambda rank: [shape] * number)
        self.calls_one("all_to_all", arrays if self.is_list else arrays[0])

    def check_all_to_all(self, results: list[Any]) -> None:
        rows = [self.rows] * self.size
        if self.is_list:
            for r, got in enumerate(results[0]):
                same(self.what, got, self.inputs(r)[self.rank])
        else:
            parts = [self.cut(self.inputs(r)[0], rows)[self.rank] for r in range(self.size)]
            same(self.what, results[0], numpy.concatenate(parts, dtype=self.dtype))

    def splits(self, rank: int) -> list[int]:
        """Rows that a rank gives to each."""
        return [self.spec["counts"][(rank + 2 * other) % 5] for other in range(self.size)]

    def make_all_to_all_v(self) -> None:
        outputs = [self.splits(r)[self.rank] for r in range(self.size)]
        told = outputs if self.spec["told"] else None
        if self.is_list:
            arrays = self.takes(lambda rank: [self.even(count) for count in self.splits(rank)])
            self.calls_one("all_to_all_v", arrays, None, told)
        else:
            (x,) = self.takes(lambda rank: [self.even(sum(self.splits(rank)))])
            self.calls_one("all_to_all_v", x, self.splits(self.rank), told)

    def check_all_to_all_v(self, results: list[Any]) -> None:
        if self.is_list:
            expected = [self.inputs(r)[self.rank] for r in range(self.size)]
            for got, each in zip(results[0], expected, strict=True):
                same(self.what, got, each)
        else:
            parts = [
                self.cut(self.inputs(r)[0], self.splits(r))[self.rank] for r in range(self.size)
            ]
            same(self.what, results[0], numpy.concatenate(parts, dtype=self.dtype))

    # ---- others ----

    def make_barrier(self) -> None:
        self.calls_one("barrier")

    def check_barrier(self, results: list[Any]) -> None:
        assert results == [None], self.what

    def make_messages(self) -> None:
        """Each rank sends to the one that is ``root`` places on, perhaps itself."""
        (x,) = self.takes(lambda rank: [self.even(self.rows)])
        self.out = laid_out(self.even(self.rows), self.dtype, self.layout)
        self.source = (self.rank - self.root) % self.size
        tag = self.spec["seed"] % 3
        self.calls_one("send", x, (self.rank + self.root) % self.size, tag)
        self.calls_one("recv", self.out, self.source, tag)

    def check_messages(self, results: list[Any]) -> None:
        assert results == [None, self.source], self.what
        same(self.what, self.out, self.inputs(self.source)[0])
