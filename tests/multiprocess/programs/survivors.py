# SPDX-License-Identifier: Apache-2.0
"""A rank is killed; the others name it, shrink and go on. Then one of them aborts."""

import os
import signal
import threading

import ciuic
import numpy
from ciuic import CiuicContext


def until_error(context: CiuicContext) -> ciuic.CiuicError:
    while True:
        try:
            context.all_reduce(numpy.ones(1000))
        except ciuic.CiuicError as error:
            return error


def main() -> None:
    context = CiuicContext(timeout_s=60)
    context.barrier()
    assert context.error is None
    victim = context.world_size - 1
    if context.rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    error = until_error(context)
    assert isinstance(error, ciuic.PeerLostError), error
    assert f"rank {victim} " in str(error), error
    assert str(context.error) == str(error)
    shrunk = context.shrink()
    context.close()
    assert shrunk.world_size == victim
    values = shrunk.all_reduce(numpy.ones(1000))
    assert (values == victim).all()
    if shrunk.rank == 0:
        shrunk.all_reduce(numpy.ones(1000))  # so that the other one has its values
        threading.Thread(target=shrunk.abort, args=("enough",)).start()
    error = until_error(shrunk)
    assert isinstance(error, ciuic.AbortedError), error
    assert str(error) == "rank 0 called abort(): enough"
    shrunk.close()
    print(f"survived {shrunk.rank}", flush=True)


if __name__ == "__main__":
    main()
