# SPDX-License-Identifier: Apache-2.0
"""Sub-groups and splits. Run by all ranks."""

import gc
import os
import time

import hosts
import numpy
from ciuic import CiuicContext

GROUPS = 50


def check(group: CiuicContext) -> None:
    x = numpy.full(20_000, group.rank + 1.0)
    group.all_reduce(x)
    assert (x == group.world_size * (group.world_size + 1) / 2).all()
    every = group.all_gather(numpy.array([group.rank]))
    assert [int(each[0]) for each in every] == list(range(group.world_size))


def splits(ctx: CiuicContext) -> None:
    rank, size = ctx.rank, ctx.world_size
    half = ctx.split(rank % 2, key=-rank)
    assert half is not None
    members = [r for r in range(size) if r % 2 == rank % 2][::-1]
    assert (half.world_size, half.rank) == (len(members), members.index(rank))
    assert half.timeout_s == ctx.timeout_s
    check(half)
    every = half.all_gather(numpy.array([rank]))
    assert [int(each[0]) for each in every] == members
    # A group of a group, and no group at all.
    alone = half.split(color=half.rank)
    assert alone is not None
    assert alone.world_size == 1
    check(alone)
    none = ctx.split(None if rank else 7)
    assert (none is None) == (rank != 0)
    half.close()
    check(ctx)


def subgroups(ctx: CiuicContext) -> None:
    """Only its members call it; ranks are in the order of the list."""
    rank, size = ctx.rank, ctx.world_size
    reversed_ranks = list(range(size))[::-1]
    everybody = ctx.subgroup(numpy.array(reversed_ranks), timeout_s=60)
    assert everybody.rank == reversed_ranks.index(rank)
    check(everybody)
    if rank < 2:
        with ctx.subgroup(range(min(2, size))) as pair:
            check(pair)
            pair.barrier()
    check(ctx)


def opposite_order(ctx: CiuicContext) -> None:
    rank = ctx.rank
    a, b = ctx.split(0), ctx.split(0)
    groups = [a, b] if rank % 2 == 0 else [b, a]
    for _ in range(10):
        arrays = [numpy.full(100_000, rank + 1.0) for _ in groups]
        handles = [g.all_reduce_async(x) for g, x in zip(groups, arrays, strict=True)]
        for handle in handles:
            handle.wait()
        total = ctx.world_size * (ctx.world_size + 1) / 2
        assert all((x == total).all() for x in arrays)
    ctx.barrier()


def held() -> tuple[int, int]:
    gc.collect()
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def dropped(ctx: CiuicContext) -> None:
    """Groups that were made and dropped leave no descriptor and no thread."""

    def use_one(number: int) -> None:
        group = ctx.split(number % 3)
        assert group is not None
        group.all_reduce(numpy.ones(10))
        group.barrier()
        if number % 2:
            group.close()

    for number in range(5):
        use_one(number)
    ctx.barrier()
    before = held()
    for number in range(GROUPS):
        use_one(number)
    ctx.barrier()
    deadline = time.monotonic() + 20
    while any(now > then for now, then in zip(held(), before, strict=True)):
        # The last farewell may still be on its way to a peer.
        assert time.monotonic() < deadline, f"{before} became {held()}"
        time.sleep(0.01)


def main() -> None:
    hosts.deal_out()
    with CiuicContext(timeout_s=120) as ctx:
        for part in (splits, subgroups, opposite_order, dropped):
            part(ctx)
            ctx.barrier()
    print("all good")


main()
