# SPDX-License-Identifier: Apache-2.0
"""Rank 0 waits in an all-reduce for rank 1, which does something else, until Ctrl-C."""

import sys
import threading

import numpy
from ciuic import CiuicContext, CiuicError

ctx = CiuicContext(timeout_s=100)
ctx.barrier()
try:
    if ctx.rank == 0:
        print("waiting", flush=True)
        ctx.all_reduce(numpy.ones(10))
    else:
        threading.Event().wait()
except KeyboardInterrupt:
    print(f"rank {ctx.rank} was interrupted", flush=True)
    try:
        ctx.barrier()
    except CiuicError:
        sys.exit(0)  # the group has ended
    sys.exit("the group goes on")
