# SPDX-License-Identifier: Apache-2.0
"""Ranks 0 and 2 wait for rank 1, which does something else, until Ctrl-C comes to rank 0 alone.

The argument is the call that waits. The group then ends everywhere: for rank 2 in that call, for
rank 1 in the next, and rank 0 takes no more work.
"""

import sys

import numpy
from ciuic import CiuicContext, CiuicError, PeerLostError, TimeoutError

way = sys.argv[1]
ctx = CiuicContext(timeout_s=100)
ctx.barrier()
x = numpy.ones(1_000_000)


def wait() -> None:
    if way == "all_reduce":
        ctx.all_reduce(x)
    elif way == "barrier":
        ctx.barrier()
    elif way == "wait":
        ctx.all_reduce_async(x).wait()
    elif way == "several":
        ctx.all_reduce([x, numpy.ones(3), x])
    elif way == "recv":
        ctx.recv(x, 0 if ctx.rank == 1 else 1)
    elif way == "coalesce":
        with ctx.coalesce() as group:
            ctx.all_to_all_async(x[: 3 * ctx.world_size])
            ctx.barrier_async()
        group.wait()


if ctx.rank == 0:
    try:
        print("waiting", flush=True)
        wait()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    else:
        sys.exit("not interrupted")
elif ctx.rank == 1:
    assert sys.stdin.readline() == "go\n"  # rank 2 has been told meanwhile
for _ in range(2):
    try:
        wait()
    except TimeoutError as error:
        sys.exit(f"nobody said so: {error}")
    except CiuicError as error:
        if ctx.rank == 0:
            assert not isinstance(error, PeerLostError), error  # it was this rank that ended it
        print(f"ended: {type(error).__name__}: {error}", flush=True)
    else:
        sys.exit("the group goes on")
print("all good", flush=True)
