# SPDX-License-Identifier: Apache-2.0
"""The rank that the first argument names is killed while a child that it forked lives on; the
others learn of its end meanwhile.
"""

import os
import signal
import sys

import numpy
from ciuic import CiuicContext, PeerLostError

victim = int(sys.argv[1])
ctx = CiuicContext(timeout_s=100)
ctx.barrier()
child = 0
if ctx.rank == victim:
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        while True:
            signal.pause()
numbers = [int(x[0]) for x in ctx.all_gather(numpy.array([child, os.getpid()]))]
if ctx.rank == victim:
    print(f"child {child}", flush=True)
    while True:
        signal.pause()


def lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


print("waiting", flush=True)
try:
    ctx.barrier()
except PeerLostError as error:
    assert f"rank {victim}" in str(error), error
    assert lives(numbers[victim]), "the child has ended before"
    print(f"all good: {error}", flush=True)
