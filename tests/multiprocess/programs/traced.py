# SPDX-License-Identifier: Apache-2.0
"""A rank of a job in which rank 1 does what the first argument says, before the sixth operation.

``kill``, ``stop``: itself. ``late FILE``: it waits for the file. ``differ``: it calls another one.
``end``: nothing.
"""

import os
import signal
import sys
import time

import numpy
from ciuic import CiuicContext


def main() -> None:
    way = sys.argv[1]
    with CiuicContext(timeout_s=200) as context:
        x = numpy.ones(1000, dtype=numpy.float32)
        for _ in range(5):
            context.all_reduce(x)
        print("ready", os.getpid(), flush=True)
        if context.rank == 1:
            if way == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif way == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif way == "late":
                while not os.path.exists(sys.argv[2]):
                    time.sleep(0.01)
            elif way == "differ":
                context.broadcast(x, 1)
        context.all_reduce(x)
        context.barrier()
    print("done", flush=True)


main()
