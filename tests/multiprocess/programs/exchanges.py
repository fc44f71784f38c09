# SPDX-License-Identifier: Apache-2.0
"""Operations in which ranks get different parts: even and uneven, of one array and of a list, with
any dtype and strides, blocking and not. Run by all ranks.

All ranks make all ranks' inputs from the same seed, so each knows the right result by itself.
"""

import itertools
import math

import ciuic
import hosts
import ml_dtypes
import numpy
from ciuic import CiuicContext

MOVED = [
    *(numpy.dtype(getattr(ml_dtypes, name, name)) for name in ciuic.dtypes.names()),
    numpy.dtype("datetime64[s]"),
    numpy.dtype(">i4"),
    numpy.dtype([("a", "i2"), ("b", "f8")]),
]
ROWS = [0, 1, 3, 50, 9_001]  # of each rank; the largest are more than one chunk


def random_bytes(seed: int, shape: tuple[int, ...], dtype: numpy.dtype) -> numpy.ndarray:
    """Any bits at all, NaNs of any kind among them: what is moved must not change."""
    count = math.prod(shape)
    data = numpy.random.default_rng(seed).bytes(count * dtype.itemsize)
    if dtype.kind == "b":
        return (numpy.frombuffer(data, dtype=numpy.uint8) % 2 == 1).reshape(shape)
    return numpy.frombuffer(data, dtype=dtype).reshape(shape)  # read-only


def same(what: str, got: numpy.ndarray, expected: numpy.ndarray) -> None:
    assert got.dtype == expected.dtype, f"{what}: {got.dtype} is not {expected.dtype}"
    assert got.shape == expected.shape, f"{what}: {got.shape} is not {expected.shape}"
    assert got.tobytes() == expected.tobytes(), what


def strided(x: numpy.ndarray) -> numpy.ndarray:
    """The same values with other strides."""
    wide = numpy.zeros((*x.shape[:-1], 2 * x.shape[-1]), dtype=x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def uneven_counts(seed: int, size: int, rows: int) -> list[int]:
    """Rows for each rank: some 0, together not divisible by anything."""
    places = [seed + rank for rank in range(size)]
    return [0 if k % 4 == 0 else rows * (k % 3) + r for r, k in enumerate(places)]


def finished(result: object) -> object:
    return result.wait() if isinstance(result, ciuic.Handle) else result


def moved_evenly(ctx: CiuicContext) -> None:
    rank, size = ctx.rank, ctx.world_size
    for seed, (dtype, rows) in enumerate(itertools.product(MOVED, ROWS)):
        what = f"{dtype} {rows} rows"
        inputs = [random_bytes(100 * seed + r, (size * rows, 2), dtype) for r in range(size)]
        parts = [numpy.split(x, size) for x in inputs]
        own = strided(inputs[rank]) if seed % 3 == 0 else inputs[rank]
        end = "_async" if seed % 2 else ""
        got = finished(getattr(ctx, "all_to_all" + end)(own))
        same("all_to_all " + what, got, numpy.concatenate([p[rank] for p in parts], dtype=dtype))
        listed = finished(getattr(ctx, "all_to_all" + end)(parts[rank]))
        for r in range(size):
            same("all_to_all of a list " + what, listed[r], parts[r][rank])
        root = seed % size
        gathered = finished(getattr(ctx, "gather" + end)(own, dst=root))
        assert (gathered is not None) == (rank == root)
        for r in range(size if gathered is not None else 0):
            same("gather " + what, gathered[r], inputs[r])
        out = numpy.zeros((rows, 2), dtype=dtype)
        out = strided(out) if seed % 3 == 1 else out
        given = None
        if rank == root:
            stacked = inputs[root].reshape(size, rows, 2)
            given = [parts[root], stacked, iter(parts[root])][seed % 3]
        assert finished(getattr(ctx, "scatter" + end)(out, given, src=root)) is out
        same("scatter " + what, out, parts[root][rank])


def moved_unevenly(ctx: CiuicContext) -> None:
    rank, size = ctx.rank, ctx.world_size
    for seed, (dtype, rows) in enumerate(itertools.product(MOVED, ROWS)):
        what = f"{dtype} {rows} rows"
        end = "_async" if seed % 2 else ""
        counts = uneven_counts(seed, size, rows)
        inputs = [random_bytes(7000 + 100 * seed + r, (counts[r], 3), dtype) for r in range(size)]
        own = strided(inputs[rank]) if seed % 3 == 0 else inputs[rank]
        told = counts if seed % 2 else None
        every = finished(getattr(ctx, "all_gather_v" + end)(own, told))
        for r in range(size):
            same("all_gather_v " + what, every[r], inputs[r])
        root = seed % size
        every = finished(getattr(ctx, "gather_v" + end)(own, root, told))
        assert (every is not None) == (rank == root)
        for r in range(size if every is not None else 0):
            same("gather_v " + what, every[r], inputs[r])
        out = numpy.zeros((counts[rank], 3), dtype=dtype)
        out = strided(out) if seed % 3 == 1 else out
        given = [strided(x) if r % 2 else x for r, x in enumerate(inputs)]
        ctx.scatter_v(out, given if rank == root else None, root)
        same("scatter_v " + what, out, inputs[rank])
        # Rank r gives the rows of `splits[r]`.
        splits = [uneven_counts(seed + r, size, rows) for r in range(size)]
        sources = [random_bytes(seed + 31 * r, (sum(splits[r]), 3), dtype) for r in range(size)]
        cut = [numpy.split(x, numpy.cumsum(s)[:-1]) for x, s in zip(sources, splits, strict=True)]
        expected = [cut[r][rank] for r in range(size)]
        outputs = [splits[r][rank] for r in range(size)] if seed % 2 else None
        call = getattr(ctx, "all_to_all_v" + end)
        got = finished(call(sources[rank], splits[rank], outputs))
        same("all_to_all_v " + what, got, numpy.concatenate(expected, dtype=dtype))
        for x, y in zip(finished(call(cut[rank])), expected, strict=True):
            same("all_to_all_v of a list " + what, x, y)


def reduced(ctx: CiuicContext) -> None:
    rank, size = ctx.rank, ctx.world_size
    for seed, (name, rows) in enumerate(
        itertools.product(["float32", "float64", "int32", "int64", "complex64"], ROWS)
    ):
        what = f"{name} {rows} rows"
        end = "_async" if seed % 2 else ""
        random = numpy.random.default_rng(seed)
        inputs = [random.integers(-9, 9, (size * rows, 2)).astype(name) for _ in range(size)]
        total = sum(inputs[1:], start=inputs[0])
        own = strided(inputs[rank]) if seed % 3 == 0 else inputs[rank]
        own.flags.writeable = False
        before = own.copy()
        part = total[rank * rows : (rank + 1) * rows]
        same("reduce_scatter " + what, finished(getattr(ctx, "reduce_scatter" + end)(own)), part)
        parts = numpy.split(own, size)
        same("of a list " + what, finished(getattr(ctx, "reduce_scatter" + end)(parts)), part)
        if name != "complex64":
            highest = numpy.maximum.reduce(inputs)[rank * rows : (rank + 1) * rows]
            same("MAX " + what, ctx.reduce_scatter(own, CiuicContext.MAX), highest)
        counts = uneven_counts(seed, size, rows)
        inputs = [random.integers(-9, 9, (sum(counts), 2)).astype(name) for _ in range(size)]
        total = sum(inputs[1:], start=inputs[0])
        call = getattr(ctx, "reduce_scatter_v" + end)
        part = numpy.split(total, numpy.cumsum(counts)[:-1])[rank]
        same("reduce_scatter_v " + what, finished(call(inputs[rank], counts=counts)), part)
        parts = numpy.split(inputs[rank], numpy.cumsum(counts)[:-1])
        same("reduce_scatter_v of a list " + what, finished(call(parts)), part)
        assert (own == before).all(), "the input has changed"


def scalars(ctx: CiuicContext) -> None:
    """Lists of arrays without dimensions, and arrays whose rows have no elements."""
    rank, size = ctx.rank, ctx.world_size
    assert ctx.reduce_scatter([numpy.array(float(r)) for r in range(size)]) == rank * size
    got = ctx.all_to_all([numpy.array(10 * rank + r) for r in range(size)])
    assert [int(x) for x in got] == [10 * r + rank for r in range(size)]
    out = numpy.array(-1.0)
    ctx.scatter(out, numpy.arange(float(size)) if rank == 0 else None)
    assert out == rank
    empty = ctx.all_gather_v(numpy.zeros((rank, 0)))
    assert [x.shape for x in empty] == [(r, 0) for r in range(size)]
    assert ctx.all_to_all(numpy.zeros((size, 0, 3))).shape == (size, 0, 3)


def main() -> None:
    hosts.deal_out()
    with CiuicContext(timeout_s=120) as ctx:
        for part in (moved_evenly, moved_unevenly, reduced, scalars):
            part(ctx)
            ctx.barrier()
    print("all good")


main()
