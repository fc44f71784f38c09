# SPDX-License-Identifier: Apache-2.0
"""Rank 1 is gone between the join and the first operation, before any link is connected; ranks 0
and 2 call operations that need it, and one another.

The argument is the way in which rank 1 goes.
"""

import os
import signal
import sys

import numpy
from ciuic import CiuicContext, PeerLostError

way = sys.argv[1]
ctx = CiuicContext(timeout_s=100)
if ctx.rank == 1:
    if way == "close":
        ctx.close()
    if way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "os_exit":
        os._exit(0)
    sys.exit(0)
print("joined", flush=True)
assert sys.stdin.readline() == "go\n"  # rank 1 is gone
for call in (lambda: ctx.all_reduce(numpy.ones(100_000)), ctx.barrier):
    try:
        call()
    except PeerLostError as error:
        assert "rank 1" in str(error), error
    else:
        sys.exit("it cannot have ended well")
print("all good", flush=True)
