# SPDX-License-Identifier: Apache-2.0
"""Plans of one's own, run by several ranks beside the library's. What to do is the first argument.

``all``: a registered all_reduce, reduce_scatter and broadcast, in every way to call them.
``differ``: the last rank's plans are others than those of the others.
``wrong``: plans that are wrong, which is found before anything is sent.
``files FILE...``: all_reduce by a plan file.
"""

import os
import sys

if "--hosts" in sys.argv:  # "--hosts 2": that many hosts, ranks dealt out in order
    place = sys.argv.index("--hosts")
    hosts = int(sys.argv[place + 1])
    del sys.argv[place : place + 2]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ["CIUIC_HOST_ID"] = f"host-{rank * hosts // size}"

import ciuic
import numpy
from ciuic import CiuicContext, plan
from ciuic.plan import Layout, Partition, Plan

COUNTS = (0, 1, 5, 1000, 70_001)


def others(layout: Layout, rank: int) -> list[int]:
    return [peer for peer in range(layout.size) if peer != rank]


def everyone(layout: Layout, rank: int, root: int) -> Plan:
    """all_reduce: everyone sends all to everyone."""
    made = Plan(input=1, output=1, scratch=1)
    peers = others(layout, rank)
    made.send(peers, plan.input(0))
    made.reduce(peers, rank, plan.input(0), plan.scratch(0), received_raw=True, final=True)
    made.copy(plan.scratch(0), plan.output(0))
    return made


def in_two(layout: Layout, rank: int, root: int) -> Plan:
    """all_reduce: rank j adds up block j, and shows it to all."""
    size = layout.size
    made = Plan(input=size, output=size)
    peers = others(layout, rank)
    for peer in peers:
        made.send(peer, plan.input(peer))
    made.reduce(peers, rank, plan.input(rank), plan.output(rank), received_raw=True, final=True)
    made.send(peers, plan.output(rank), lane=1)
    for peer in peers:
        made.receive(peer, plan.output(peer), lane=1)
    return made


def scattered(layout: Layout, rank: int, root: int) -> Plan:
    """reduce_scatter: every rank adds up its own block."""
    made = Plan(
        Partition(layout.size, "each"), Partition(1, "each", first=rank), input_offset=-rank
    )
    peers = others(layout, rank)
    for peer in peers:
        made.send(peer, plan.input(peer))
    made.reduce(peers, rank, plan.input(rank), plan.output(0), received_raw=True, final=True)
    return made


def line(layout: Layout, rank: int, root: int) -> Plan:
    """broadcast: from each rank to the next."""
    made = Plan(input=1, output=1)
    place = (rank - root) % layout.size
    if place > 0:
        made.receive((rank - 1) % layout.size, plan.output(0))
    else:
        made.copy(plan.input(0), plan.output(0))
    if place < layout.size - 1:
        source = plan.output(0) if place > 0 else plan.input(0)
        made.send((rank + 1) % layout.size, source)
    return made


def calls(ctx: CiuicContext) -> None:
    rank, size = ctx.rank, ctx.world_size
    total = size * (size + 1) / 2
    for count in COUNTS:
        for algorithm in ("everyone", "mine", None):
            x = numpy.full(count, rank + 1.0)
            assert ctx.all_reduce(x, algorithm=algorithm) is x
            assert (x == total).all(), (algorithm, count, x)
            x = numpy.full(count, rank + 1.0, dtype=numpy.float32)
            handle = ciuic.all_reduce_async(x, CiuicContext.AVG, ctx, algorithm=algorithm)
            handle.wait()
            assert (x == numpy.float32(total / size)).all(), (algorithm, count, x)
            many = [numpy.full(count, rank + 1), numpy.full(3, rank + 1)]
            ctx.all_reduce(many, CiuicContext.MAX, algorithm=algorithm)
            assert all((x == size).all() for x in many), (algorithm, count, many)
        x = numpy.repeat(numpy.arange(size), count) + rank
        got = ctx.reduce_scatter(x, algorithm="mine")
        assert got.shape == (count,)
        assert (got == rank * size + size * (size - 1) // 2).all(), got
        for src in range(size):
            x = numpy.full(count, rank if rank == src else -1)
            ctx.broadcast(x, src, algorithm="mine")
            assert (x == src).all(), (src, x)


def together(ctx: CiuicContext) -> None:
    """Inside of blocks, and in groups that are made of this one."""
    rank, size = ctx.rank, ctx.world_size
    x, y = numpy.full(9, rank + 1), numpy.full(5, rank)
    with ctx.coalesce() as group:
        ctx.all_reduce_async(x, algorithm="mine")
        ctx.broadcast_async(y, size - 1, algorithm="mine")
    group.wait()
    assert (x == size * (size + 1) // 2).all()
    assert (y == size - 1).all()
    x = numpy.zeros(7)
    with ctx.persistent() as step:
        ctx.all_reduce_async(x, algorithm="mine")
    for _ in range(3):
        x[...] = 1
        step.run()
        assert (x == size).all()
    if size > 2:
        part = ctx.split(0 if rank else 1)  # of another layout
        assert part is not None
        x = numpy.ones(1003)
        if part.world_size > 1:
            part.all_reduce(x, algorithm="mine")
        assert (x == part.world_size).all()
        part.close()
    # One of the library's own by name, and one that is registered anew under the same name.
    plan.register("mine", everyone)
    for algorithm in ("one_shot", "mine"):
        x = numpy.ones(11)
        ctx.all_reduce(x, algorithm=algorithm)
        assert (x == size).all()
    refused(ctx, "there are .*one_shot.* mine", "no_such_one")


def refused(ctx: CiuicContext, why: str, algorithm: str) -> None:
    """The call is refused on this rank, and the context goes on."""
    import re

    x = numpy.full(3, 7.0)
    for call in (ctx.all_reduce, ctx.all_reduce_async):
        try:
            call(x, algorithm=algorithm)
        except ciuic.InvalidArgumentError as error:
            assert re.search(why, str(error)), error
            continue
        raise AssertionError(f"{algorithm} was not refused")
    assert (x == 7).all()
    assert ctx.error is None


def differ(ctx: CiuicContext) -> None:
    is_last = ctx.rank == ctx.world_size - 1
    plan.register("theirs", everyone if is_last else in_two)
    x = numpy.ones(100)
    try:
        ctx.all_reduce(x, algorithm="theirs", timeout_s=60)
    except ciuic.MismatchError as error:
        print(f"mismatch: {error}", flush=True)
        return
    raise AssertionError("no mismatch")


def wrong(ctx: CiuicContext) -> None:
    def in_its_own_order(layout: Layout, rank: int, root: int) -> Plan:
        made = everyone(layout, rank, root)
        made.steps[1]["own_place"] = 0
        return made

    def into_what_is_sent(layout: Layout, rank: int, root: int) -> Plan:
        made = Plan(input=1, output=1)
        peers = others(layout, rank)
        made.send(peers, plan.input(0))
        made.reduce(peers, rank, plan.input(0), plan.output(0), received_raw=True, final=True)
        return made

    plan.register("order", in_its_own_order)
    refused(ctx, "order is wrong: rank 1, output 0: is another expression", "order")
    plan.register("deadlock", into_what_is_sent)
    refused(ctx, r"deadlock is wrong: deadlock.*rank 0 waits in step 1 \(reduce", "deadlock")
    plan.register("none", lambda layout, rank, root: None)
    refused(ctx, "gave NoneType for rank 0", "none")
    # Nothing was sent: the ranks still agree on what comes next.
    x = numpy.ones(5)
    ctx.all_reduce(x)
    assert (x == ctx.world_size).all()


def main() -> None:
    what, *files = sys.argv[1:]
    with CiuicContext() as ctx:
        if what == "all":
            plan.register("everyone", everyone)
            plan.register("mine", in_two)
            plan.register("mine", scattered, "reduce_scatter")
            plan.register("mine", line, "broadcast")
            calls(ctx)
            together(ctx)
        elif what == "differ":
            return differ(ctx)
        elif what == "wrong":
            wrong(ctx)
        elif what == "files":
            for path in files:
                plan.load(path, name="filed")
            x = numpy.full(1001, ctx.rank)
            ctx.all_reduce(x, algorithm="filed")
            assert (x == ctx.world_size * (ctx.world_size - 1) // 2).all()
        ctx.barrier()
        print("all good", ctx.describe()["transports"], flush=True)


main()
