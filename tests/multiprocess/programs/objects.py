# SPDX-License-Identifier: Apache-2.0
"""Objects: refused unless the context allows them, as in groups made from it. Run by all ranks."""

import threading

import ciuic
import hosts
from ciuic import CiuicContext

CALLS = {
    "all_gather_object": (1,),
    "gather_object": (1,),
    "broadcast_object": (1,),
    "scatter_object": ([1],),
    "send_object": (1, 0),
    "recv_object": (0,),
}


def refused(ctx: CiuicContext) -> None:
    for group in (ctx, ctx.split(0)):
        for name, arguments in CALLS.items():
            try:
                getattr(group, name)(*arguments)
            except ValueError as error:
                assert "allow_pickle=True" in str(error), error
                assert "Nothing was sent" in str(error), error
            else:
                raise AssertionError(f"{name} was not refused")
            assert getattr(ciuic, name)


def sent(ctx: CiuicContext) -> None:
    rank, size = ctx.rank, ctx.world_size
    thing = {"rank": rank, "text": "x" * (1 + 50_000 * rank), "none": None}
    every = ctx.all_gather_object(thing)
    assert [each["rank"] for each in every] == list(range(size))
    assert [len(each["text"]) for each in every] == [1 + 50_000 * r for r in range(size)]
    gathered = ctx.gather_object(thing, dst=size - 1)
    assert gathered == (every if rank == size - 1 else None)
    root = {"of": "the root"}
    got = ctx.broadcast_object(root if rank == size - 1 else None, src=size - 1)
    assert got == root
    own = ctx.scatter_object(
        [("to", r, "y" * 40_000 * r) for r in range(size)] if rank == 0 else None
    )
    assert own == ("to", rank, "y" * 40_000 * rank)
    if rank == 0:
        came = [ctx.recv_object(tag=None) for _ in range(2 * (size - 1))]
        assert sorted(came) == sorted([(r, tag) for r in range(1, size) for tag in (1, 2)])
    else:
        for tag in (1, 2):
            ctx.send_object((rank, tag), 0, tag)
    # To itself: a thread sends, another one receives.
    thread = threading.Thread(target=ctx.send_object, args=(thing, rank, 77))
    thread.start()
    assert ctx.recv_object(rank, 77) == thing
    thread.join()
    try:
        ctx.all_gather_object(lambda: 0)  # cannot be pickled, on any rank
    except Exception as error:
        assert "pickle" in str(error).lower() or "local" in str(error), error
    else:
        raise AssertionError("pickled a lambda")
    ctx.barrier()


def main() -> None:
    hosts.deal_out()
    with CiuicContext(timeout_s=120) as ctx:
        refused(ctx)
        ctx.barrier()
    with CiuicContext(timeout_s=120, allow_pickle=True) as ctx:
        sent(ctx)
        half = ctx.split(0)
        assert half is not None
        assert half.all_gather_object(ctx.rank) == list(range(ctx.world_size))
        half.barrier()
    print("all good")


main()
