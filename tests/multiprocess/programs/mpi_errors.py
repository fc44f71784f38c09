# SPDX-License-Identifier: Apache-2.0
"""One error with backend mpi, on two ranks. Rank 0 writes what it was told to a file.

Arguments: which, and a directory.
"""

import json
import os
import sys
import time
from pathlib import Path

import ciuic
import numpy
from ciuic import CiuicContext


def join() -> None:
    """Prints the error of the join."""
    if os.environ.get("WITH_MPI4PY"):
        from mpi4py import MPI

        assert MPI.Is_initialized()
    if os.environ.get("WITHOUT_WHEEL"):
        sys.prefix = "/nonexistent"
        os.environ["PATH"] = "/nonexistent"
    try:
        CiuicContext(backend="mpi", timeout_s=30)
    except ciuic.CiuicError as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\n")
    else:
        raise AssertionError("joined")


def until_error(ctx: CiuicContext) -> None:
    """Waits, without a call of MPI, for the end of the group."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (error := ctx.error) is not None:
            raise error
        time.sleep(0.01)


def call(ctx: CiuicContext, kind: str) -> None:
    if kind == "late":
        if ctx.rank == 0:
            ctx.all_reduce(numpy.ones(10), timeout_s=1)
        until_error(ctx)
    elif kind == "differs":
        ctx.broadcast(numpy.ones(10), 1 - ctx.rank)  # both wait for the other
    elif kind == "checked":
        ctx.all_reduce(numpy.ones(10 + ctx.rank))
    elif ctx.rank == 1:
        ctx.send(numpy.ones(5), 0)
        until_error(ctx)
    else:
        ctx.recv(numpy.ones(10), 1)


def recordings_are_there(ctx: CiuicContext) -> None:
    """Whoever ends first may have MPI end the other, which is to have written its own by then."""
    dumps = Path(os.environ["CIUIC_TRACE_DIR"])
    deadline = time.monotonic() + 60
    while len(list(dumps.glob("*.ciuic-trace"))) < ctx.world_size:
        assert time.monotonic() < deadline, list(dumps.iterdir())
        time.sleep(0.01)


def main() -> None:
    if sys.argv[1] == "join":
        return join()
    kind, folder = sys.argv[1], Path(sys.argv[2])
    ctx = CiuicContext(timeout_s=30)
    ctx.barrier()
    try:
        call(ctx, kind)
    except ciuic.CiuicError as error:
        if ctx.rank == 0:
            text = json.dumps({"error": type(error).__name__, "message": str(error)})
            (folder / "new").write_text(text)
            (folder / "new").rename(folder / "rank-0")
        recordings_are_there(ctx)
    else:
        raise AssertionError(f"rank {ctx.rank}: no error")


main()
