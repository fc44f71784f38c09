# SPDX-License-Identifier: Apache-2.0
"""``ciuic.spawn`` from a script."""

import os
import subprocess
import sys
import threading

import ciuic
import numpy


def add(rank: int, value: float) -> tuple[int, float, int]:
    x = numpy.full(4, rank + value)
    ciuic.all_reduce(x)
    return rank, float(x[0]), int(os.environ["LOCAL_RANK"])


def fail(rank: int) -> None:
    os.write(1, b"pid %d\n" % os.getpid())  # in one piece
    ciuic.barrier()
    if rank == 1:
        raise ValueError("the cause")
    threading.Event().wait()


def stay(rank: int) -> None:
    children = [subprocess.Popen(["sleep", "1000"]) for _ in range(2)]
    try:
        os.write(1, b"pids %d %d %d\n" % (os.getpid(), *[child.pid for child in children]))
        threading.Event().wait()
    finally:
        os.write(1, b"rank %d ends\n" % rank)


def leave(rank: int) -> None:
    if rank == 0:
        os._exit(9)
    threading.Event().wait()


def with_torch(rank: int) -> float:
    import torch

    torch.distributed.init_process_group("gloo")
    x = torch.ones(1)
    torch.distributed.all_reduce(x)
    torch.distributed.destroy_process_group()
    return float(x)


def main() -> None:
    if "--stay" in sys.argv:
        ciuic.spawn(stay, nprocs=2)
    before = dict(os.environ)
    assert ciuic.spawn(add, (1.0,), 3) == [(r, 6.0, r) for r in range(3)]
    assert ciuic.spawn(add, (1.0,), nprocs=2, start_method="fork") == [(0, 3.0, 0), (1, 3.0, 1)]
    assert dict(os.environ) == before
    if "--torch" in sys.argv:
        assert ciuic.spawn(with_torch, nprocs=2) == [2.0, 2.0]
    for function, rank, code, text in ((fail, 1, 1, "ValueError: the cause"), (leave, 0, 9, "9")):
        try:
            ciuic.spawn(function, nprocs=2)
        except ciuic.RankFailedError as error:
            assert (error.rank, error.exit_code) == (rank, code), error
            assert text in str(error), error
        else:
            raise AssertionError("did not fail")
    try:
        ciuic.spawn(add, nprocs=0)
    except ValueError:
        pass
    else:
        raise AssertionError("no ranks, no error")
    print("all good")


if __name__ == "__main__":
    main()
