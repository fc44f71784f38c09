# SPDX-License-Identifier: Apache-2.0
"""One process of one implementation: ``python -m ciuic.bench.worker FD``, or ``... FOLDER``.

FD is a socket on which the bench sends commands, a JSON object a line, and gets an answer for each;
in FOLDER it listens for one.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import time
import traceback
from typing import IO, Any

from ciuic import _native
from ciuic.bench.implementations import Joined, RefusedError
from ciuic.bench.mpi_job import connect
from ciuic.dtypes import CODE_OF_NAME, SIZE_OF_CODE, ReduceOp


def main(place: str) -> None:
    """Serves until told to close, or until the bench is gone."""
    opened = socket.socket(fileno=int(place)) if place.isdigit() else connect(place)
    with opened as connection, connection.makefile("rw") as stream:
        settings = json.loads(stream.readline())
        rank, ranks = settings["rank"], settings["ranks"]
        _pin(rank, ranks)
        try:
            implementation = Joined(settings["impl"], rank, ranks, settings)
        except Exception as error:
            _answer(stream, _failure(error))
            return
        _answer(stream, {"ready": True, "library": implementation.library()})
        for line in stream:
            command = json.loads(line)
            if command["do"] == "close":
                implementation.close()
                _answer(stream, {"closed": True})
                return
            try:
                _answer(stream, _serve(implementation, settings, command))
            except Exception as error:
                _answer(stream, _failure(error))


def _pin(rank: int, ranks: int) -> None:
    """A core for each rank, alike for all implementations, where there are as many."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= ranks:
        os.sched_setaffinity(0, {cores[rank]})


def _serve(
    implementation: Joined, settings: dict[str, Any], command: dict[str, Any]
) -> dict[str, Any]:
    through, count = command["through"], command["count"]
    if command["do"] == "check":
        if settings["operation"] == "ddp":
            return {"difference": implementation.check_step(count)}
        if settings["impl"] == "fake":  # it sends nothing
            return {"difference": -1}
        dtype = CODE_OF_NAME[settings["dtype"]]
        op = int(ReduceOp[settings["op"].upper()])
        ranks = settings["ranks"]
        address = implementation.address(through)
        _native.bench_fill(address, count, dtype, op, settings["rank"], ranks)
        implementation.once(through, count)
        difference = _native.bench_first_difference(address, count, dtype, op, ranks)
        # What is timed is applied to its own result again and again: zeros stay zeros.
        ctypes.memset(address, 0, count * SIZE_OF_CODE[dtype])
        return {"difference": difference}
    warm_up, iterations = command["warm_up"], command["iterations"]
    began_ns = time.process_time_ns()
    durations = implementation.run(through, count, warm_up, iterations)
    # Of all threads of the process; the calls that warm up are like the others.
    cpu_ns = (time.process_time_ns() - began_ns) * iterations // (warm_up + iterations)
    return {"ns": durations, "cpu_ns": cpu_ns}


def _failure(error: Exception) -> dict[str, Any]:
    if isinstance(error, RefusedError):
        return {"refused": str(error)}
    return {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}


def _answer(stream: IO[str], answer: dict[str, Any]) -> None:
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


if __name__ == "__main__":
    main(sys.argv[1])
