# SPDX-License-Identifier: Apache-2.0
"""Rank 0 has done its part of the last operation and is gone before rank 1 looks at it.

Arguments: the way in which rank 0 goes; the elements that it broadcasts; "later", where rank 1 has
called one more operation already. Nobody closes a context.
"""

import multiprocessing
import os
import signal
import sys

import ciuic
import numpy
from ciuic import CiuicContext


def first(way: str, count: int) -> None:
    ctx = CiuicContext(timeout_s=100)
    ctx.all_reduce(numpy.ones(3))  # links are made when first needed
    ctx.broadcast(numpy.arange(count, dtype=numpy.float64))
    if way == "exit":
        sys.exit(0)
    if way == "os_exit":
        os._exit(0)
    # else off the end


def second(count: int, calls_more: bool) -> None:
    ctx = CiuicContext(timeout_s=100)
    ctx.all_reduce(numpy.ones(3))
    x = numpy.full(count, -1.0)
    handle = ctx.broadcast_async(x)  # rank 0 hears that its data are awaited
    later = ctx.broadcast_async(x.copy()) if calls_more else None
    os.kill(os.getpid(), signal.SIGSTOP)  # all threads, until the test lets it go on
    handle.wait()
    assert (x == numpy.arange(count)).all()
    print("received", flush=True)
    try:
        ctx.barrier() if later is None else later.wait()
    except ciuic.PeerLostError as error:
        print(f"then lost: {error}", flush=True)


if __name__ == "__main__":
    way, count = sys.argv[1], int(sys.argv[2])
    if os.environ["RANK"] == "1":
        second(count, "later" in sys.argv)
    elif way in ("fork", "spawn"):
        process = multiprocessing.get_context(way).Process(target=first, args=("end", count))
        process.start()
        process.join()
        sys.exit(process.exitcode)
    else:
        first(way, count)
