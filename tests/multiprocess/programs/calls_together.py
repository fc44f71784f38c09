# SPDX-License-Identifier: Apache-2.0
"""Coalesced and persistent calls. Run by all ranks."""

import threading

import ciuic
import hosts
import numpy
from ciuic import CiuicContext

LARGE = 300_000  # far more than is sent before it is asked for


def cannot_deadlock(ctx: CiuicContext) -> None:
    """Everybody sends first, to all, and receives then."""
    rank, size = ctx.rank, ctx.world_size
    for _ in range(3):
        got = [numpy.full((LARGE, 2), -1.0)[:, 0] for _ in range(size)]
        with ctx.coalesce() as group:
            for peer in range(size):
                ctx.send_async(numpy.full(LARGE, 100.0 * rank + peer), peer)
            receives = [ctx.recv_async(got[peer], peer) for peer in range(size)]
        assert len(group) == 2 * size
        group.wait()
        assert group.done()
        for peer in range(size):
            assert (got[peer] == 100.0 * peer + rank).all()
            assert receives[peer].wait() == peer
            assert receives[peer].done()


def everything(ctx: CiuicContext) -> None:
    """Operations of all kinds in one block; waited for in the opposite order, without the group."""
    rank, size = ctx.rank, ctx.world_size
    total = size * (size + 1) / 2
    x = numpy.full((50, 2), rank + 1.0)
    merged = [numpy.full(n, rank + 1.0) for n in (1, 70_000, 3)]
    column = numpy.full((9, 4), rank + 1.0)[:, 1]
    out = numpy.zeros(3)
    with ciuic.coalesce(ctx):
        handles = [
            ctx.all_reduce_async(x),
            ctx.all_reduce_async(column),
            ctx.all_reduce_async(merged),
            ctx.reduce_async(numpy.full(2, 1.0), dst=size - 1),
            ctx.broadcast_async([numpy.full(2, rank), numpy.full(3, rank)], src=size - 1),
            ctx.all_gather_async(numpy.array([rank])),
            ctx.all_gather_v_async(numpy.full(rank, rank), list(range(size))),
            ctx.gather_async(numpy.array([rank])),
            ctx.scatter_async(out, numpy.eye(size, 3) if rank == 0 else None),
            ctx.reduce_scatter_async(numpy.ones(2 * size)),
            ctx.all_to_all_async(numpy.arange(size) + 10 * rank),
            ctx.all_to_all_v_async(numpy.full(size, rank), [1] * size, [1] * size),
            *([ctx.barrier_async()] if ctx.backend != "nccl" else []),  # there it is the host's
        ]
        assert not any(handle.done() for handle in handles)
    results = [handle.wait() for handle in reversed(handles)][::-1]
    assert results[0] is x
    assert (x == total).all()
    assert (column == total).all()
    assert all((array == total).all() for array in merged)
    assert results[3] is None if rank != size - 1 else (results[3] == size).all()
    assert all((array == size - 1).all() for array in results[4])
    assert [int(array[0]) for array in results[5]] == list(range(size))
    assert [array.tolist() for array in results[6]] == [[r] * r for r in range(size)]
    assert (results[7] is None) == (rank != 0)
    assert (out == numpy.eye(size, 3)[rank]).all()
    assert (results[9] == size).all()
    assert results[10].tolist() == [10 * r + rank for r in range(size)]
    assert results[11].tolist() == list(range(size))


def ranks_that_group_differently(ctx: CiuicContext) -> None:
    """The same calls in the same order: on even ranks coalesced, on odd ones not."""
    rank, size = ctx.rank, ctx.world_size
    x, y = numpy.ones(5), numpy.ones(100_000)
    if rank % 2 == 0:
        with ctx.coalesce() as group:
            ctx.all_reduce_async(x)
            ctx.all_reduce_async(y)
        group.wait()
    else:
        ctx.all_reduce(x)
        ctx.all_reduce(y)
    assert (x == size).all()
    assert (y == size).all()


def an_error_sends_nothing(ctx: CiuicContext) -> None:
    """On rank 0 alone, so that a call that was made there would be a mismatch with what follows."""
    if ctx.rank == 0:
        handle = None
        try:
            with ctx.coalesce() as group:
                handle = ctx.all_reduce_async(numpy.ones(3))
                raise KeyError("of the user's")
        except KeyError:
            pass
        for waits in (handle, group):
            try:
                waits.wait()
            except ValueError as error:
                assert "Nothing was sent" in str(error)
            else:
                raise AssertionError("waited for what was not sent")
        try:
            with ctx.coalesce():
                ctx.all_reduce_async(numpy.ones(3))
                ctx.barrier()
        except ValueError as error:
            assert "_async" in str(error), error
        else:
            raise AssertionError("a call that blocks was taken")
    assert (ctx.all_reduce(numpy.ones(4)) == ctx.world_size).all()


def other_threads(ctx: CiuicContext) -> None:
    """A thread collects, another one uses the context as ever."""
    size = ctx.world_size
    is_open, may_end = threading.Event(), threading.Event()
    x = numpy.ones(7)

    def collect() -> None:
        with ctx.coalesce() as group:
            ctx.all_reduce_async(x)
            is_open.set()
            assert may_end.wait(60)
        group.wait()

    thread = threading.Thread(target=collect)
    thread.start()
    assert is_open.wait(60)
    y = numpy.ones(9)
    ctx.all_reduce(y)
    assert (y == size).all()
    assert (x == 1).all()
    may_end.set()
    thread.join()
    assert (x == size).all()


def persistent(ctx: CiuicContext) -> None:
    rank, size = ctx.rank, ctx.world_size
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in (3, 100_000):
        gradient = numpy.zeros(count)
        given, got = numpy.zeros(count), numpy.zeros(count)
        with ctx.persistent() as step:
            ctx.all_reduce_async(gradient)
            ctx.send_async(given, right)
            receive = ctx.recv_async(got, left)
            gathered = ctx.all_gather_async(given)
        for start in range(30):
            gradient[...] = rank + start
            given[...] = 1000 * rank + start
            if start % 2:
                step.run()
            else:
                handle = step.start()
                handle.wait()
                assert handle.done()
            assert (gradient == size * start + size * (size - 1) / 2).all()
            assert (got == 1000 * left + start).all()
            assert receive.wait() == left
            for r, array in enumerate(gathered.wait()):
                assert (array == 1000 * r + start).all()


def a_second_start(ctx: CiuicContext) -> None:
    """Before the first one has ended: refused, and the first one ends well."""
    if ctx.world_size == 1:
        return
    x = numpy.ones(10)
    with ctx.persistent() as step:
        ctx.all_reduce_async(x)
    ctx.barrier()
    if ctx.rank == 0:
        handle = step.start()
        try:
            step.start()  # rank 1 starts only when it is told so
        except ValueError as error:
            assert "has not ended" in str(error), error
        else:
            raise AssertionError("started twice")
        ctx.send(numpy.zeros(1), 1, tag=3)
        handle.wait()
    else:
        if ctx.rank == 1:
            ctx.recv(numpy.zeros(1), 0, tag=3)
        step.run()
    assert (x == ctx.world_size).all()


def main() -> None:
    hosts.deal_out()
    with CiuicContext(timeout_s=120) as ctx:
        for part in (
            cannot_deadlock,
            everything,
            ranks_that_group_differently,
            an_error_sends_nothing,
            other_threads,
            persistent,
            a_second_start,
        ):
            if ctx.backend == "nccl" and part in (ranks_that_group_differently, a_second_start):
                continue  # one rank's message waits behind a collective call of the other's
            part(ctx)
            ctx.barrier()
    print("all good")


main()
