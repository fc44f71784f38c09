# SPDX-License-Identifier: Apache-2.0
"""One process of an implementation: what the bench does with it, and how it is started by us."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import IO

from ciuic.errors import CiuicError
from ciuic.run import processes

WORKER = (sys.executable, "-m", "ciuic.bench.worker")


class BenchError(CiuicError):
    """An implementation failed, or its results are wrong; the message names it and the rank."""


class Rank:
    """A process, and the connection to it."""

    def __init__(self, number: int, pid: int, connection: socket.socket) -> None:
        self.number = number
        self.pid = pid
        self.connection = connection
        self.stream: IO[str] = connection.makefile("rw")

    def signal(self, number: int) -> None:
        """Without effect where the process has been seen to end."""
        raise NotImplementedError

    def stands(self) -> bool:
        """Waits until the process is stopped; False where it has ended instead."""
        raise NotImplementedError

    def ended(self, timeout_s: float) -> str | None:
        """How the process ended, once it has; None where it has not in that time."""
        raise NotImplementedError

    def close(self) -> None:
        """Of a process that was killed: waits for its end. May be repeated."""
        self.connection.close()
        with contextlib.suppress(OSError):
            self.stream.close()


class ChildRank(Rank):
    """Started by us; it leads a process group."""

    def __init__(self, number: int, environment: Mapping[str, str], log_fd: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*WORKER, str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log_fd,
                stderr=log_fd,
                pass_fds=(theirs.fileno(),),
                preexec_fn=processes.child_setup(),
            )
        super().__init__(number, self._process.pid, ours)

    def signal(self, number: int) -> None:
        if self._process.returncode is None:  # else the number may be another process's by now
            processes.signal_group(self.pid, number)

    def stands(self) -> bool:
        if self._process.returncode is not None:
            return False
        how = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return how is None or how.si_code == os.CLD_STOPPED

    def ended(self, timeout_s: float) -> str | None:
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def close(self) -> None:
        self._process.wait()
        super().close()
