# SPDX-License-Identifier: Apache-2.0
"""Several programs of this folder in one process, one after another: a launcher is slow to start.

Arguments: what the programs' contexts say of their backend, then the programs. Before them:

- "--most N": MPI, by mpi4py, is taken to count no further than N in one call.
- "--device N": all arrays are on a GPU of the fake CUDA runtime; -1: that of the rank's number.
"""

import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import ciuic
import on_device
from ciuic import mpi


def count_less(most: int) -> None:
    """Makes every array a large one."""
    from mpi4py import MPI

    found = mpi.found

    def less(mpi_comm: Any = None) -> dict[str, Any]:
        arguments = found(mpi_comm)
        arguments["mpi_constants"]["MOST_COUNT"] = most
        return arguments

    mpi.found = less
    assert MPI.Is_initialized()


def main() -> None:
    arguments = sys.argv[1:]
    del sys.argv[1:]
    while arguments[0].startswith("--"):
        if arguments[0] == "--most":
            count_less(int(arguments[1]))
        else:
            device = int(arguments[1])
            on_device.install(int(os.environ["RANK"]) if device < 0 else device)
        del arguments[:2]
    backend, *programs = arguments
    with ciuic.CiuicContext(timeout_s=120) as ctx:
        assert ctx.backend == backend, ctx.backend
        rank = ctx.rank
        for program in programs:
            start = time.monotonic()
            runpy.run_path(str(Path(__file__).parent / program), run_name="__main__")
            ctx.barrier()
            if rank == 0:
                print(f"{program}: {time.monotonic() - start:.1f} s", file=sys.stderr)
    print("suite is good")


main()
