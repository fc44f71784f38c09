# SPDX-License-Identifier: Apache-2.0
"""Fails in its first two lives: once killed in an operation, once before the join."""

import os
import signal

import numpy
from ciuic import CiuicContext


def main() -> None:
    life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if life == 1 and os.environ["RANK"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    context = CiuicContext(timeout_s=60)
    for number in range(100):
        if life == 0 and context.rank == 1 and number == 50:
            os.kill(os.getpid(), signal.SIGKILL)
        assert (context.all_reduce(numpy.ones(1000)) == 2).all()
    print(f"all good in life {life}", flush=True)


if __name__ == "__main__":
    main()
