# SPDX-License-Identifier: Apache-2.0
"""Operations on shared tensors, against the same ones on ordinary arrays. Run by all ranks.

Each rank knows all inputs, so it tells by itself whether what it got is right. ``--part NAME`` runs
one part alone.
"""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator

import ciuic
import ml_dtypes
import numpy
from ciuic import CiuicContext

DTYPES = [
    numpy.dtype(name)
    for name in ("float32", "float64", "float16", ml_dtypes.bfloat16, "int8", "int64", "bool")
]
COUNTS = [0, 1, 1000, 20_011, 70_001, 500_003]


def mappings(kind: str = "") -> int:
    """Of shared tensors in this process; ``kind`` "r--s": those that belong to peers."""
    with open("/proc/self/maps") as file:
        return sum("ciuic-tensors" in line and kind in line for line in file)


def descriptors() -> int:
    """Of shared tensors."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += "ciuic-tensors" in os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # that of the listing itself
    return count


def values(seed: int, shape: tuple[int, ...], dtype: numpy.dtype) -> numpy.ndarray:
    random = numpy.random.default_rng(seed)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        return random.integers(-9, 9, shape).astype(dtype)
    return random.uniform(-2, 2, shape).astype(dtype)


Make = Callable[[tuple[int, ...], numpy.dtype], numpy.ndarray]


def layouts(make: Make) -> Iterator[tuple[str, Make]]:
    """Whole arrays, those that begin within one, and such as are no contiguous memory."""

    def offset(shape: tuple[int, ...], dtype: numpy.dtype) -> numpy.ndarray:
        return make((shape[0] + 5, *shape[1:]), dtype)[3:-2]

    def strided(shape: tuple[int, ...], dtype: numpy.dtype) -> numpy.ndarray:
        return make((shape[0] * 2, *shape[1:]), dtype)[::2]

    yield "whole", make
    yield "offset", offset
    yield "strided", strided


def operations(ctx: CiuicContext, make: Make, count: int, dtype: numpy.dtype, seed: int) -> list:
    """What every operation gives, from arrays that ``make`` has made."""
    rank, size = ctx.rank, ctx.world_size
    results = []

    def filled(of: int, rows: int) -> numpy.ndarray:
        x = make((rows,), dtype)
        x[...] = values(seed * 100 + of, (rows,), dtype)
        return x

    op = CiuicContext.MAX if dtype.kind == "b" else CiuicContext.SUM
    x = filled(rank, count)
    ctx.all_reduce(x, op)
    results.append(x.copy())
    reduced = ctx.reduce(filled(rank, count), size - 1, op)
    results.append(reduced)
    results.append(ctx.reduce_scatter(filled(rank, size * count), op))
    counts = [count // (other + 1) for other in range(size)]
    results.append(ctx.reduce_scatter_v(filled(rank, sum(counts)), op, counts=counts))
    x = filled(rank, count)
    ctx.broadcast(x, 0)
    results.append(x.copy())
    results.extend(ctx.all_gather(filled(rank, count)))
    results.extend(ctx.all_gather_v(filled(rank, counts[rank]), counts))
    results.extend(ctx.gather(filled(rank, count), 0) or [])
    results.extend(ctx.gather_v(filled(rank, counts[rank]), 0, counts) or [])
    out = make((count,), dtype)
    ctx.scatter(out, [filled(other, count) for other in range(size)] if rank == 0 else None)
    results.append(out.copy())
    results.append(ctx.all_to_all(filled(rank, size * count)))
    gives = [counts[(rank + other) % size] for other in range(size)]
    results.append(ctx.all_to_all_v(filled(rank, sum(gives)), gives, gives))
    message = make((count,), dtype)
    with ctx.coalesce() as both:
        ctx.send_async(filled(rank, count), (rank + 1) % size)
        ctx.recv_async(message, (rank - 1) % size)
    both.wait()
    results.append(message.copy())
    return [None if result is None else numpy.asarray(result).tobytes() for result in results]


def same_bits(ctx: CiuicContext) -> None:
    """With ordinary arrays, with shared ones, and where only some ranks have shared ones."""
    ordinary: Make = numpy.empty
    shared: Make = ctx.empty
    some: Make = ctx.empty if ctx.rank % 2 == 0 else numpy.empty
    for dtype in DTYPES:
        for seed, count in enumerate(COUNTS):
            if count > 100_000 and dtype.name not in ("float32", "bfloat16"):
                continue
            expected = operations(ctx, ordinary, count, dtype, seed)
            for name, make in [*layouts(shared), ("some", some), ("whole again", shared)]:
                got = operations(ctx, make, count, dtype, seed)
                assert got == expected, f"{dtype} {count} {name}: {differing(got, expected)}"
    ctx.barrier()
    if ctx.world_size > 1:
        assert mappings("r--s") > 0, "no peer's tensor was ever read where it lies"


def differing(got: list, expected: list) -> list[int]:
    return [i for i, (a, b) in enumerate(zip(got, expected, strict=True)) if a != b]


def scribbling(ctx: CiuicContext) -> None:
    """What is written to a tensor after an operation on it, no other rank ever sees.

    Each rank does so at once, while others, of which one is slow, may still be reading.
    """
    rank, size = ctx.rank, ctx.world_size
    count = 300_000
    mine = ctx.empty(count, numpy.int32)
    parts = ctx.empty(size * count, numpy.int32)
    incoming = ctx.empty(count, numpy.int32)
    random = numpy.random.default_rng(rank)
    for number in range(60):

        def value(of: int, number: int = number) -> int:
            return number * 1000 + of

        def linger(number: int = number) -> None:
            if number % size == rank:  # busy with something else
                numpy.sort(random.integers(0, 1 << 30, 50_000))

        def spoil() -> None:
            mine.fill(-1)
            parts.fill(-1)

        mine.fill(value(rank))
        gathering = ctx.all_gather_async(mine)
        linger()
        gathered = gathering.wait()
        spoil()
        for of, x in enumerate(gathered):
            assert (x == value(of)).all(), f"all_gather {number}: of rank {of} {set(x.tolist())}"

        mine.fill(value(rank))
        reducing = ctx.all_reduce_async(mine)
        linger()
        reducing.wait()
        total = sum(value(of) for of in range(size))
        got = mine.copy()
        spoil()
        assert (got == total).all(), f"all_reduce {number}: {set(got.tolist())}, not {total}"

        mine.fill(value(rank))
        linger()
        root = number % size
        ctx.broadcast(mine, root)
        got = mine.copy()
        spoil()
        assert (got == value(root)).all(), f"broadcast {number}: {set(got.tolist())}"

        parts[...] = numpy.repeat([value(of) for of in range(size)], count)
        exchanging = ctx.all_to_all_async(parts)
        linger()
        exchanged = exchanging.wait()
        spoil()
        assert (exchanged == value(rank)).all(), f"all_to_all {number}: {set(exchanged.tolist())}"

        mine.fill(value(rank))
        receiving = ctx.recv_async(incoming, (rank - 1) % size)
        linger()
        ctx.send(mine, (rank + 1) % size)
        spoil()
        receiving.wait()
        assert (incoming == value((rank - 1) % size)).all(), f"recv {number}"


def subgroups(ctx: CiuicContext) -> None:
    """A tensor that one group has made is read by the ranks of another, too."""
    x = ctx.empty(100_000, numpy.float32)
    with ctx.split(ctx.rank % 2, -ctx.rank) as half:
        for number in range(5):
            x.fill(ctx.rank + number)
            half.all_reduce(x)
            ranks = range(ctx.rank % 2, ctx.world_size, 2)
            assert (x == sum(rank + number for rank in ranks)).all()
            x.fill(1)
            ctx.all_reduce(x)
            assert (x == ctx.world_size).all()


def resources(ctx: CiuicContext) -> None:
    """Tensors that come and go take no more than the first, and all of it comes back."""
    gc.collect()
    for number in range(40):
        x = ctx.empty(200_000 + number % 3 * 100_000, numpy.float32)
        x.fill(1)
        view = x[10:]
        del x  # the view keeps it
        ctx.all_reduce(view)
        assert (view == ctx.world_size).all()
        if number == 20:
            first = (mappings(), descriptors(), ctx.memory_usage()["tensors"])
        del view
    ctx.barrier()
    now = (mappings(), descriptors(), ctx.memory_usage()["tensors"])
    assert all(a <= b for a, b in zip(now, first, strict=True)), f"{now} after {first}"
    many = [ctx.empty(100_000, numpy.float64) for _ in range(100)]
    for x in many:
        x.fill(1)
        ctx.all_reduce(x)
    assert ctx.memory_usage()["tensors"] >= 100 * 800_000
    assert mappings("r--s") <= 64 * (ctx.world_size - 1)
    kept = many[7]
    del many, x
    ctx.barrier()
    ctx.close()
    gc.collect()
    assert mappings("r--s") == 0
    assert descriptors() == 1
    kept.fill(3)
    assert (kept == 3).all()
    del kept
    gc.collect()
    assert (mappings(), descriptors()) == (0, 0)


def forked(ctx: CiuicContext) -> None:
    """A child sees its parent's tensor and leaves everything else alone."""
    x = ctx.empty(100_000, numpy.float32)
    x.fill(ctx.rank)
    ctx.all_reduce(x)
    total = sum(range(ctx.world_size))
    child = os.fork()
    if child == 0:
        try:
            assert (x == total).all()
            try:
                ctx.empty(10, numpy.float32)
            except ciuic.ClosedError:
                del x
                gc.collect()
                os._exit(0)
            os._exit(1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    y = ctx.empty(100_000, numpy.float32)  # not the memory that the child let go
    y.fill(7)
    assert (x == total).all()
    x.fill(1)
    ctx.all_reduce(x)
    assert (x == ctx.world_size).all()


def death(ctx: CiuicContext) -> None:
    """The last rank dies between its operations, while the others are in the middle of theirs."""
    victim = ctx.world_size - 1
    x = ctx.empty(2_000_000, numpy.float32)
    x.fill(0)
    try:
        for number in range(1000):
            if ctx.rank == victim and number == 20:
                os.kill(os.getpid(), signal.SIGKILL)
            ctx.all_reduce(x)
            assert (x == 0).all()
    except ciuic.PeerLostError as error:
        assert f"rank {victim}" in str(error)
    else:
        raise AssertionError("nobody missed the rank that died")
    x.fill(5)  # it is the caller's again
    survivors = ctx.shrink()
    ctx.close()
    y = survivors.empty(100_000, numpy.float32)
    for _ in range(5):
        y.fill(1)
        survivors.all_reduce(y)
        assert (y == survivors.world_size).all()
    assert (x == 5).all()
    survivors.close()
    del x, y
    gc.collect()
    assert (mappings(), descriptors()) == (0, 0)


def abandoned(ctx: CiuicContext) -> None:
    """A rank that ends the group in the middle of an operation and writes to its tensor at once:
    no other rank takes what it wrote for a result."""
    x = ctx.empty(4_000_000, numpy.float32)
    for number in range(30):
        x.fill(1)
        ctx.all_reduce(x)
        assert (x == ctx.world_size).all(), number
    x.fill(1)
    handle = ctx.all_gather_async(x)
    if ctx.rank == 0:
        ctx.abort("enough")
    try:
        got = handle.wait()
    except ciuic.CiuicError:
        x.fill(-7)
    else:
        x.fill(-7)
        for part in got:
            assert (part == 1).all(), set(part.tolist())
    del x
    try:
        ctx.barrier()
    except ciuic.CiuicError:
        return
    raise AssertionError("the group did not end")


def torch_tensors(ctx: CiuicContext) -> None:
    import torch

    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64):
        x = ctx.empty((300, 400), dtype)
        assert x.dtype is dtype
        assert x.shape == (300, 400)
        assert x.is_contiguous()
        for _ in range(3):
            x.fill_(ctx.rank + 1)
            ctx.all_reduce(x)
            assert (x == sum(range(1, ctx.world_size + 1))).all()
        rows = x[10:200]
        rows.fill_(2)
        ctx.all_reduce(rows)
        assert (x[10:200] == 2 * ctx.world_size).all()


PARTS = {
    part.__name__: part
    for part in (
        same_bits,
        scribbling,
        subgroups,
        torch_tensors,
        forked,
        resources,
        death,
        abandoned,
    )
}


def main() -> None:
    name = sys.argv[sys.argv.index("--part") + 1]
    context = CiuicContext(timeout_s=120)
    PARTS[name](context)
    context.close()
    print("all good")


main()
