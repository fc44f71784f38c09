# SPDX-License-Identifier: Apache-2.0
"""A program that has initialised MPI for less than all threads. Argument: its thread level."""

import sys
import threading

import mpi4py

mpi4py.rc.thread_level = sys.argv[1]

import numpy  # noqa: E402
from ciuic import CiuicContext  # noqa: E402
from mpi4py import MPI  # noqa: E402


def main() -> None:
    serialized = sys.argv[1] == "serialized"
    ctx = CiuicContext(backend="mpi", timeout_s=60)
    assert ctx.describe()["mpi"]["thread_level"] == sys.argv[1]
    x = numpy.ones(50_000)
    assert (ctx.all_reduce(x) == ctx.world_size).all()
    handle = ctx.all_gather_async(numpy.array([ctx.rank]))
    assert [int(each[0]) for each in handle.wait()] == list(range(ctx.world_size))
    half = ctx.split(ctx.rank)
    assert half is not None
    half.barrier()

    errors: list[Exception] = []

    def elsewhere() -> None:
        try:
            ctx.barrier()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    if serialized:
        assert not errors, errors
    else:
        assert "one thread alone" in str(errors[0]), errors
        assert isinstance(errors[0], ValueError)
    ctx.barrier()
    half.close()
    ctx.close()
    assert MPI.Query_thread() < MPI.THREAD_MULTIPLE
    print("all good")


main()
