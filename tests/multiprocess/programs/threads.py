# SPDX-License-Identifier: Apache-2.0
"""Many threads: on groups of their own, on one group in an agreed order, and on two groups that the
ranks use in opposite orders.
"""

import itertools
import threading

import numpy
from ciuic import CiuicContext

THREADS, ROUNDS = 6, 30


def run(targets) -> None:
    errors: list[BaseException] = []

    def guarded(target) -> None:
        try:
            target()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def check(x: numpy.ndarray, ctx: CiuicContext, value: float) -> None:
    expected = sum(value + rank for rank in range(ctx.world_size))
    assert (x == expected).all(), (x[:3], expected)


def groups_of_their_own() -> None:
    """A thread and a group each; all groups are in one order on all ranks."""
    contexts = [CiuicContext(timeout_s=120) for _ in range(THREADS)]

    def work(number: int) -> None:
        ctx = contexts[number]
        for i in range(ROUNDS):
            x = numpy.full(1 + number * 997 * (i % 3), number + i + ctx.rank, dtype=numpy.float64)
            ctx.all_reduce(x)
            check(x, ctx, number + i)

    run([lambda n=n: work(n) for n in range(THREADS)])
    for ctx in contexts:
        ctx.close()


def one_group(ctx: CiuicContext) -> None:
    """Threads that agree on their order: each starts operations in its turn, and waits when it is
    another one's."""
    turn = threading.Condition()
    following = itertools.count()
    state = {"next": next(following)}

    def work(number: int) -> None:
        for i in range(ROUNDS):
            mine = i * THREADS + number
            with turn:
                assert turn.wait_for(lambda mine=mine: state["next"] == mine, 100)
                x = numpy.full(1 + mine * 37, float(mine + ctx.rank))
                handle = ctx.all_reduce_async(x)
                state["next"] = next(following)
                turn.notify_all()
            handle.wait()
            check(x, ctx, mine)

    run([lambda n=n: work(n) for n in range(THREADS)])


def same_work_waited_for_by_many(ctx: CiuicContext) -> None:
    for i in range(ROUNDS):
        x = numpy.full(50_000, float(i + ctx.rank))
        handle = ctx.all_reduce_async(x)
        run([handle.wait] * THREADS)
        check(x, ctx, i)


def opposite_orders() -> None:
    first, second = CiuicContext(timeout_s=120), CiuicContext(timeout_s=120)
    for i in range(ROUNDS):
        large = i % 3 == 0
        arrays = [numpy.full(400_000 if large else 10, float(i + first.rank)) for _ in range(8)]
        order = (first, second) if first.rank % 2 == 0 else (second, first)
        # All of one group, then all of the other; each rank waits in its own order too.
        halves = {first: arrays[:4], second: arrays[4:]}
        handles = [
            handle for ctx in order for handle in [ctx.all_reduce_async(x) for x in halves[ctx]]
        ]
        for handle in handles:
            handle.wait()
        for x in arrays:
            check(x, first, i)
    first.close()
    second.close()


def opposite_orders_by_threads() -> None:
    """Blocking calls, a thread for each group, begun in opposite orders."""
    contexts = [CiuicContext(timeout_s=120) for _ in range(2)]

    def work(ctx: CiuicContext) -> None:
        for i in range(ROUNDS):
            x = numpy.full(100_000, float(i + ctx.rank))
            ctx.all_reduce(x)
            check(x, ctx, i)

    order = contexts if contexts[0].rank % 2 == 0 else contexts[::-1]
    run([lambda ctx=ctx: work(ctx) for ctx in order])


ctx = CiuicContext(timeout_s=120)
groups_of_their_own()
one_group(ctx)
same_work_waited_for_by_many(ctx)
opposite_orders()
opposite_orders_by_threads()
ctx.barrier()
print("all good", flush=True)
