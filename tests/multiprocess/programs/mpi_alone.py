# SPDX-License-Identifier: Apache-2.0
"""What only backend mpi has: communicators of mpi4py, and what describe() says. By four ranks."""

import ciuic
import numpy
from ciuic import CiuicContext
from mpi4py import MPI

WORLD = MPI.COMM_WORLD


def refused(error: type[Exception], words: str, **arguments: object) -> None:
    try:
        CiuicContext(backend="mpi", timeout_s=60, **arguments)  # type: ignore[arg-type]
    except error as raised:
        assert words in str(raised), raised
    else:
        raise AssertionError(f"{arguments} was taken")


def check(ctx: CiuicContext, ranks: list[int]) -> None:
    """The ranks of WORLD that are there, in their order."""
    assert ctx.world_size == len(ranks)
    assert ranks[ctx.rank] == WORLD.rank
    every = ctx.all_gather(numpy.array([WORLD.rank]))
    assert [int(each[0]) for each in every] == ranks
    assert ctx.all_reduce(numpy.ones(3)).tolist() == [len(ranks)] * 3


def main() -> None:
    everybody = list(range(WORLD.size))
    with CiuicContext(backend="mpi", timeout_s=60) as ctx:
        check(ctx, everybody)
        told = ctx.describe()
        assert told["backend"] == ctx.backend == "mpi"
        assert told["store"] == "MPI"
        assert told["mpi"]["thread_level"] == "multiple"
        assert told["mpi"]["initialised_by"] == "program"
        assert told["mpi"]["library"] in " ".join(MPI.Get_library_version().split())
        assert repr(ctx) == f"<CiuicContext rank {ctx.rank} of {ctx.world_size}>"

    # A communicator of the program's, with ranks in another order; freed before it is used.
    backwards = WORLD.Split(0, -WORLD.rank)
    ctx = CiuicContext(backend="mpi", mpi_comm=backwards, timeout_s=60)
    backwards.Free()
    check(ctx, everybody[::-1])
    ctx.close()
    half = WORLD.Split(WORLD.rank % 2, 0)
    for _ in range(3):
        with CiuicContext(backend="mpi", mpi_comm=half, timeout_s=60) as ctx:
            check(ctx, everybody[WORLD.rank % 2 :: 2])

    # Ranks that are given.
    turned = (WORLD.rank + 1) % WORLD.size
    with CiuicContext(WORLD.size, turned, backend="mpi", timeout_s=60) as ctx:
        check(ctx, [everybody[-1], *everybody[:-1]])
        pair = ctx.split(ctx.rank // 2)
        assert pair is not None
        check(pair, [everybody[-1], 0] if ctx.rank < 2 else [1, 2])
        assert pair.describe()["mpi"] == ctx.describe()["mpi"]

    # MPI's own calls and messages of the program are not in the way.
    with CiuicContext(backend="mpi", timeout_s=60) as ctx:
        x = numpy.full(100_000, 1.0)
        handle = ctx.all_reduce_async(x)
        assert WORLD.allreduce(1) == WORLD.size
        handle.wait()
        assert (x == WORLD.size).all()
        for call, words in (
            (lambda: ctx.all_reduce(numpy.ones(3), algorithm="ring"), "the native backend's"),
            (lambda: ctx.send(numpy.ones(3), 0, ciuic.MAX_TAG), "too large for this MPI"),
            (lambda: ctx.shrink(), "cannot go on in MPI"),
        ):
            if "too large" in words and WORLD.Get_attr(MPI.TAG_UB) >= ciuic.MAX_TAG:
                continue
            try:
                call()
            except ValueError as error:
                assert words in str(error), error
            else:
                raise AssertionError(f"no error: {words}")
        ctx.barrier()

    refused(ciuic.MismatchError, "has 4 ranks", world_size=3)
    refused(ValueError, "no mpi4py.MPI.Intracomm", mpi_comm=7)
    refused(ValueError, "goes with world_size", rank=0)
    print("all good")


main()
