# SPDX-License-Identifier: Apache-2.0
"""The processes of one implementation: started, stopped while others are measured, asked, ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from ciuic.errors import CiuicError
from ciuic.run import processes

_CLOSE_S = 5.0


class BenchError(CiuicError):
    """An implementation failed, or its results are wrong; the message names it and the rank."""


def refusal(answers: Sequence[Mapping[str, Any]]) -> str | None:
    """Why a rank refused, where one did."""
    return next((str(answer["refused"]) for answer in answers if "refused" in answer), None)


class _Rank:
    def __init__(self, number: int, environment: Mapping[str, str], log_fd: int) -> None:
        self.number = number
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ciuic.bench.worker", str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log_fd,
                stderr=log_fd,
                pass_fds=(theirs.fileno(),),
                preexec_fn=processes.child_setup(),
            )
        self.connection = ours
        self.stream: IO[str] = ours.makefile("rw")


class Group:
    """The processes of one implementation. They run; :meth:`pause` and :meth:`resume` change that.

    Args:
        impl: Its name.
        environments: Of each rank's process.
        settings: What each worker is told first.
        timeout_s: For each answer.
        log_fd: Where what the processes print goes.
    """

    def __init__(
        self,
        impl: str,
        environments: Sequence[Mapping[str, str]],
        settings: Mapping[str, Any],
        timeout_s: float,
        log_fd: int = 2,
    ) -> None:
        self.impl = impl
        self._timeout_s = timeout_s
        self._ranks: list[_Rank] = []
        try:
            for number, environment in enumerate(environments):
                self._ranks.append(_Rank(number, environment, log_fd))
            for rank in self._ranks:
                self._send(rank, {**settings, "impl": impl, "rank": rank.number})
        except BaseException:
            self.kill()
            raise

    @property
    def pids(self) -> list[int]:
        """Each is the number of its process group too."""
        return [rank.process.pid for rank in self._ranks]

    def join(self) -> str | None:
        """Waits until all have started; why they do not do what was asked, or None."""
        return refusal(self.answers())

    def pause(self) -> None:
        """Stops the processes, and returns when they stand."""
        self._signal(signal.SIGSTOP)
        for rank in self._ranks:
            if rank.process.returncode is not None:
                raise self._lost(rank)
            how = os.waitid(os.P_PID, rank.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            if how is not None and how.si_code != os.CLD_STOPPED:
                raise self._lost(rank)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def answers(self) -> list[dict[str, Any]]:
        """One answer of each rank, in rank order.

        Raises:
            BenchError: A process ended, failed or did not answer in time.
        """
        deadline = time.monotonic() + self._timeout_s
        found = [self._receive(rank, deadline) for rank in self._ranks]
        for rank, answer in zip(self._ranks, found, strict=True):
            if "error" in answer:
                raise BenchError(
                    f"{self.impl}, rank {rank.number}: {answer['error']}\n{answer['traceback']}"
                )
        return found

    def ask(self, **command: Any) -> list[dict[str, Any]]:
        """Sends a command to every rank and returns their answers; see :meth:`answers`."""
        for rank in self._ranks:
            self._send(rank, command)
        return self.answers()

    def close(self) -> None:
        """Ends the processes as they end by themselves, or else by force."""
        self.resume()
        with contextlib.suppress(CiuicError):
            self.ask(do="close")
            for rank in self._ranks:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    rank.process.wait(_CLOSE_S)
        self.kill()

    def kill(self) -> None:
        """Ends the processes at once. May be repeated."""
        self._signal(signal.SIGKILL)
        for rank in self._ranks:
            rank.process.wait()
            rank.connection.close()
            with contextlib.suppress(OSError):
                rank.stream.close()

    def _signal(self, number: int) -> None:
        for rank in self._ranks:
            if rank.process.returncode is None:  # else the number may be another process's by now
                processes.signal_group(rank.process.pid, number)

    def _send(self, rank: _Rank, message: Mapping[str, Any]) -> None:
        try:
            rank.stream.write(json.dumps(message) + "\n")
            rank.stream.flush()
        except OSError:
            raise self._lost(rank) from None

    def _receive(self, rank: _Rank, deadline: float) -> dict[str, Any]:
        rank.connection.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            line = rank.stream.readline()
        except TimeoutError:
            raise BenchError(
                f"{self.impl}, rank {rank.number}: no answer after {self._timeout_s:g} s"
            ) from None
        except OSError:
            line = ""
        if not line:
            raise self._lost(rank)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _lost(self, rank: _Rank) -> BenchError:
        try:
            code = rank.process.wait(1)
        except subprocess.TimeoutExpired:
            return BenchError(f"{self.impl}, rank {rank.number}: closed its connection")
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return BenchError(f"{self.impl}, rank {rank.number}: its process ended with {how}")
