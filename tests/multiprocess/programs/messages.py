# SPDX-License-Identifier: Apache-2.0
"""What two ranks send each other: any source, any tag, order, strides, sizes. Run by all ranks."""

import itertools

import ciuic
import hosts
import numpy
from ciuic import CiuicContext

COUNTS = [0, 1, 4_000, 5_000, 300_000]  # of 4 bytes: eager, and offered


def round_trip(ctx: CiuicContext) -> None:
    """Each rank gives to the next one, in each size; also to itself, where it is alone."""
    rank, size = ctx.rank, ctx.world_size
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in COUNTS:
        mine = numpy.full(count, rank, dtype=numpy.int32)
        mine.flags.writeable = False
        theirs = numpy.full(count, -1, dtype=numpy.int32)
        handle = ctx.send_async(mine, right, tag=count)
        assert ctx.recv(theirs, left, tag=count) == left
        assert (theirs == left).all()
        assert handle.wait() is None
        # Blocking, in an order that cannot go wrong.
        if rank % 2 == 0 and right != rank and (size % 2 == 0 or rank != size - 1):
            assert ctx.send(mine, right) is None
        if rank % 2 == 1:
            theirs[...] = -1
            assert ciuic.recv(theirs, src=left, context=ctx) == left
            assert (theirs == left).all()


def strides(ctx: CiuicContext) -> None:
    rank, size = ctx.rank, ctx.world_size
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in (3, 200):
        given = numpy.arange(count * count, dtype=numpy.float64).reshape(count, count).T + rank
        base = numpy.full((2 * count, 3 * count), -1.0)
        handle = ctx.send_async(given[:, ::-1], right)
        into = base[::2, ::3]
        receive = ctx.recv_async(into, left)
        assert receive.wait() == left
        assert (into == given[:, ::-1] - rank + left).all()
        assert (base == -1).sum() == base.size - count * count
        handle.wait()


def any_source(ctx: CiuicContext) -> None:
    rank, size = ctx.rank, ctx.world_size
    for count in COUNTS:
        if rank == 0:
            came = []
            for _ in range(2 * (size - 1)):
                x = numpy.zeros(count, dtype=numpy.int64)
                handle = ctx.recv_async(x, tag=None)
                came.append((handle.wait(), handle.tag))
                assert handle.source == came[-1][0]
                assert (x == 10 * handle.source + handle.tag).all()
            assert sorted(came) == sorted(itertools.product(range(1, size), (5, 6)))
            for r in range(1, size):  # of one sender, in order
                assert [tag for source, tag in came if source == r] == [5, 6]
        else:
            for tag in (5, 6):
                ctx.send(numpy.full(count, 10 * rank + tag, dtype=numpy.int64), 0, tag)
        ctx.barrier()


def order(ctx: CiuicContext) -> None:
    """Of one tag, in the order of the sends; of different tags, as the receiver asks."""
    rank, size = ctx.rank, ctx.world_size
    counts = [1, 30_000, 2, 7, 50_000, 3]
    largest_tag = ciuic.MAX_TAG if ctx.backend == "native" else 32767  # that every MPI takes
    if rank == 0:
        handles = [
            ctx.send_async(numpy.full(count, number), 1 % size, tag=9)
            for number, count in enumerate(counts)
        ]
        late = ctx.send_async(numpy.full(4, 44), 1 % size, largest_tag)
    if rank == 1 % size:
        x = numpy.zeros(4, dtype=numpy.int64)
        assert ctx.recv(x, 0, largest_tag) == 0
        assert (x == 44).all()
        for number, count in enumerate(counts):
            x = numpy.full(count, -1)
            ctx.recv(x, 0, tag=9)
            assert (x == number).all()
    if rank == 0:
        for handle in [*handles, late]:
            handle.wait()
    ctx.barrier()


def many_unasked(ctx: CiuicContext) -> None:
    """More messages than a receiver keeps, asked for in the opposite order; collectives between."""
    rank, size = ctx.rank, ctx.world_size
    right, left = (rank + 1) % size, (rank - 1) % size
    number = 100
    handles = [ctx.send_async(numpy.full(8, tag), right, tag) for tag in range(number)]
    total = ctx.all_reduce(numpy.ones(1000))
    assert (total == size).all()
    for tag in reversed(range(number)):
        x = numpy.zeros(8, dtype=numpy.int64)
        assert ctx.recv(x, left, tag) == left
        assert (x == tag).all()
    for handle in handles:
        handle.wait()


def other_dtypes(ctx: CiuicContext) -> None:
    rank, size = ctx.rank, ctx.world_size
    right, left = (rank + 1) % size, (rank - 1) % size
    for dtype in ("S5", "datetime64[ms]", "complex128", "bool"):
        given = numpy.array([rank, 0, 1]).astype(dtype)
        got = numpy.zeros(3, dtype=dtype)
        handle = ctx.send_async(given, right)
        ctx.recv(got, left)
        assert (got == numpy.array([left, 0, 1]).astype(dtype)).all()
        handle.wait()


def in_order(ctx: CiuicContext) -> None:
    """As NCCL has messages: those that cross are made together, and their order alone matches."""
    rank, size = ctx.rank, ctx.world_size
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in (*COUNTS, 3_000_000):
        mine = numpy.full((2, count), rank, dtype=numpy.int32)
        theirs = numpy.full((2, count), -1, dtype=numpy.int32)
        with ctx.coalesce():
            sent = [ctx.send_async(row, right) for row in mine]
            came = [ctx.recv_async(row, left) for row in theirs]
        assert [handle.wait() for handle in came] == [left, left]
        assert (theirs == left).all()
        for handle in sent:
            handle.wait()
    if rank == 0:
        for number in range(5):
            if size > 1:
                ctx.send(numpy.full((10, 2), number)[:, 1], 1)
    elif rank == 1:
        for number in range(5):
            x = numpy.zeros((2, 10)).T.astype(numpy.int64)
            assert ctx.recv(x[:, 0], 0) == 0
            assert (x == [number, 0]).all()


def main() -> None:
    hosts.deal_out()
    with CiuicContext(timeout_s=120) as ctx:
        every = (round_trip, strides, any_source, order, many_unasked, other_dtypes, in_order)
        for part in (in_order,) if ctx.backend == "nccl" else every:
            part(ctx)
            ctx.barrier()
    print("all good")


main()
