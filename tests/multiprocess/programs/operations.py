# SPDX-License-Identifier: Apache-2.0
"""Every operation on every dtype and op, against a reference in float64. Run by all ranks.

All ranks make all ranks' inputs from the same seed, so each knows the right result by itself.
"""

import hashlib
import itertools
import os
import sys

if "--hosts" in sys.argv:  # "--hosts 2": that many hosts, ranks dealt out in order
    hosts = int(sys.argv[sys.argv.index("--hosts") + 1])
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ["CIUIC_HOST_ID"] = f"host-{rank * hosts // size}"

import ciuic
import ml_dtypes
import numpy
from ciuic import CiuicContext

DTYPES = [  # dtypes.py has the others
    numpy.dtype(name)
    for name in ("float32", "float64", "float16", ml_dtypes.bfloat16, "int32", "int64", "uint8")
]
OPS = [CiuicContext.SUM, CiuicContext.AVG, CiuicContext.MIN, CiuicContext.MAX, CiuicContext.PRODUCT]
COUNTS = [0, 1, 3, 1000, 70_001]


def inputs(seed: int, size: int, count: int, dtype: numpy.dtype) -> list[numpy.ndarray]:
    """Of each rank: small whole numbers, or floats around 1, so that products stay small."""
    random = numpy.random.default_rng(seed)
    if dtype.kind in "iu":
        return [random.integers(1, 4, count).astype(dtype) for _ in range(size)]
    return [random.uniform(0.5, 1.5, count).astype(dtype) for _ in range(size)]


def reference(op: ciuic.ReduceOp, arrays: list[numpy.ndarray]) -> numpy.ndarray:
    exact = [x.astype(numpy.float64) for x in arrays]
    if op is CiuicContext.MIN:
        return numpy.minimum.reduce(exact)
    if op is CiuicContext.MAX:
        return numpy.maximum.reduce(exact)
    if op is CiuicContext.PRODUCT:
        return numpy.multiply.reduce(exact)
    total = numpy.add.reduce(exact)
    if op is CiuicContext.SUM:
        return total
    mean = total / len(arrays)
    return numpy.trunc(mean) if arrays[0].dtype.kind in "iu" else mean


def tolerance(dtype: numpy.dtype, size: int) -> float:
    """Relative: one rounding a hop at most."""
    epsilon = {"float32": 2**-23, "float64": 2**-52, "float16": 2**-10, "bfloat16": 2**-7}
    return (size + 1) * epsilon.get(dtype.name, 0.0)


def check(what: str, got: numpy.ndarray, expected: numpy.ndarray, allowed: float) -> None:
    difference = numpy.abs(got.astype(numpy.float64) - expected)
    bad = difference > allowed * numpy.abs(expected)
    assert not bad.any(), f"{what}: {got[bad][:3]} is not {expected[bad][:3]}"


def same_bits(ctx: CiuicContext, what: str, x: numpy.ndarray) -> None:
    digest = hashlib.sha256(numpy.ascontiguousarray(x).tobytes()).digest()
    digests = ctx.all_gather(numpy.frombuffer(digest, dtype=numpy.uint8))
    assert all((other == digests[0]).all() for other in digests), f"{what}: bits differ"


def reductions(ctx: CiuicContext) -> None:
    rank, size = ctx.rank, ctx.world_size
    for seed, (dtype, op, count) in enumerate(itertools.product(DTYPES, OPS, COUNTS)):
        arrays = inputs(seed, size, count, dtype)
        if dtype == numpy.uint8 and op is CiuicContext.PRODUCT and size > 4:
            continue
        expected = reference(op, arrays)
        allowed = tolerance(dtype, size)
        what = f"{dtype.name} {op.name} {count}"

        x = arrays[rank].copy()
        ciuic.all_reduce(x, op, ctx)
        check("all_reduce " + what, x, expected, allowed)
        same_bits(ctx, "all_reduce " + what, x)

        dst = seed % size
        x = arrays[rank].copy()
        result = ctx.reduce(x, dst, op)
        assert (x == arrays[rank]).all(), "reduce changed its input"
        assert (result is not None) == (rank == dst)
        if result is not None:
            check("reduce " + what, result, expected, allowed)


def wrapping(ctx: CiuicContext) -> None:
    """Integers wrap in their own dtype, also before AVG divides: of two ranks' 200, 72."""
    rank, size = ctx.rank, ctx.world_size
    average = 200 * size % 256 // size
    for count in (1, 70_001):
        x = numpy.full(count, 200, dtype=numpy.uint8)
        assert (ciuic.all_reduce(x, CiuicContext.AVG, ctx) == average).all(), x[:3]
        x[...] = 200
        result = ctx.reduce(x, 0, CiuicContext.AVG)
        assert (result is not None) == (rank == 0)
        assert result is None or (result == average).all(), result[:3]


def movements(ctx: CiuicContext) -> None:
    rank, size = ctx.rank, ctx.world_size
    for seed, (dtype, count) in enumerate(itertools.product(DTYPES, COUNTS)):
        arrays = inputs(1000 + seed, size, count, dtype)
        src = seed % size
        x = arrays[rank].copy()
        ctx.broadcast(x, src)
        assert (x == arrays[src]).all(), f"broadcast {dtype.name} {count}"
        for got, expected in zip(ctx.all_gather(arrays[rank]), arrays, strict=True):
            assert (got == expected).all(), f"all_gather {dtype.name} {count}"
        ctx.barrier()


def layouts(ctx: CiuicContext) -> None:
    """Strided arrays, in place, whose neighbours stay as they are."""
    rank, size = ctx.rank, ctx.world_size
    total = size * (size + 1) / 2
    for start in (False, True):
        base = numpy.full((6, 10), -1.0, dtype=numpy.float32)
        # The ranks' strides differ, the shapes do not.
        x = base[::2, ::2] if rank % 2 == 0 else base[:5, :3].T
        x[...] = rank + 1
        handle = ciuic.all_reduce_async(x, context=ctx) if start else None
        if handle is not None:
            assert handle.wait() is x
        else:
            ciuic.all_reduce(x, context=ctx)
        assert (x == total).all()
        assert (base == -1).sum() == 60 - 15


def merged(ctx: CiuicContext) -> None:
    rank, size = ctx.rank, ctx.world_size
    total = size * (size + 1) / 2
    sizes = [1, 0, 1024, 5_000_000, 7, 3_000_000]  # more than a bucket, and more than one bucket
    for start in (False, True):
        arrays = [numpy.full(n, rank + 1.0, dtype=numpy.float32) for n in sizes]
        arrays.append(numpy.full((8, 8), rank + 1.0, dtype=numpy.float32)[::2].T)
        if start:
            ciuic.all_reduce_wait(ciuic.all_reduce_async(arrays, context=ctx))
        else:
            assert ciuic.all_reduce(iter(arrays), context=ctx) is not None
        assert all((x == total).all() for x in arrays)
        ctx.broadcast(arrays, src=size - 1)
    twice = numpy.full(3, rank + 1.0)
    ciuic.all_reduce([twice, twice], context=ctx)
    assert (twice == total).all()


def in_flight(ctx: CiuicContext) -> None:
    rank, size = ctx.rank, ctx.world_size
    arrays = [numpy.full(1 + 997 * i, rank + i, dtype=numpy.float64) for i in range(20)]
    handles = [ciuic.all_reduce_async(x, context=ctx) for x in arrays]
    for i in reversed(range(20)):
        handles[i].wait()
        assert handles[i].done()
        assert (arrays[i] == sum(r + i for r in range(size))).all()
    ctx.barrier_async().wait()
    gathered = ctx.all_gather_async(numpy.array([rank])).wait()
    assert [int(x[0]) for x in gathered] == list(range(size))
    # Dropped without a wait: they end all the same, in order.
    for _ in range(10):
        ciuic.all_reduce_async(numpy.ones(5000), context=ctx)
    ctx.barrier()


def two_contexts(ctx: CiuicContext) -> None:
    """Used in opposite order on odd and even ranks."""
    rank, size = ctx.rank, ctx.world_size
    with CiuicContext() as other:
        groups = [ctx, other] if rank % 2 == 0 else [other, ctx]
        arrays = [numpy.full(100_000, rank + 1.0) for _ in groups]
        handles = [c.all_reduce_async(x) for c, x in zip(groups, arrays, strict=True)]
        for handle in handles:
            handle.wait()
        assert all((x == size * (size + 1) / 2).all() for x in arrays)
        other.barrier()


def default_context() -> None:
    x = numpy.ones(3)
    ciuic.all_reduce(x)
    assert (x == ciuic.default_context().world_size).all()
    ciuic.barrier()


def main() -> None:
    ctx = CiuicContext(timeout_s=120)
    description = ctx.describe()
    assert description["ranks"] == ctx.world_size
    for word in ("--hosts", "--transports"):
        if word in sys.argv:
            expected = sys.argv[sys.argv.index(word) + 1]
            got = description[word[2:]]
            text = "+".join(sorted(got)) if isinstance(got, list) else str(got)
            assert text == expected, f"{word[2:]}: {text}, not {expected}"
    usage = ctx.memory_usage()
    assert usage["total"] == sum(
        usage[kind] for kind in ("staging", "segments", "links", "tensors")
    )
    for part in (reductions, wrapping, movements, layouts, merged, in_flight, two_contexts):
        part(ctx)
        ctx.barrier()
    default_context()
    ctx.close()
    print("all good")


main()
