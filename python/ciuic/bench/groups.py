# SPDX-License-Identifier: Apache-2.0
"""The processes of one implementation: started, stopped while others are measured, asked, ended."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ciuic.bench.mpi_job import MpiJob
from ciuic.bench.ranks import BenchError, ChildRank, Rank
from ciuic.errors import CiuicError

__all__ = ["BenchError", "Group", "refusal"]

_CLOSE_S = 5.0


def refusal(answers: Sequence[Mapping[str, Any]]) -> str | None:
    """Why a rank refused, where one did."""
    return next((str(answer["refused"]) for answer in answers if "refused" in answer), None)


class Group:
    """The processes of one implementation. They run; :meth:`pause` and :meth:`resume` change that.

    Args:
        impl: Its name.
        environments: Of each rank's process; of no meaning where a job has started them.
        settings: What each worker is told first.
        timeout_s: For each answer.
        log_fd: Where what the processes print goes.
        job: Has started them, and ends with the group.
    """

    def __init__(
        self,
        impl: str,
        environments: Sequence[Mapping[str, str]],
        settings: Mapping[str, Any],
        timeout_s: float,
        log_fd: int = 2,
        job: MpiJob | None = None,
    ) -> None:
        self.impl = impl
        self.library = ""  # what it measures, where that has a name of its own
        self._timeout_s = timeout_s
        self._job = job
        self._ranks: list[Rank] = [] if job is None else list(job.ranks)
        try:
            if job is None:
                for number, environment in enumerate(environments):
                    self._ranks.append(ChildRank(number, environment, log_fd))
            for rank in self._ranks:
                self._send(rank, {**settings, "impl": impl, "rank": rank.number})
        except BaseException:
            self.kill()
            raise

    @property
    def pids(self) -> list[int]:
        """Each is the number of its process group too, unless a job has started it."""
        return [rank.pid for rank in self._ranks]

    def join(self) -> str | None:
        """Waits until all have started; why they do not do what was asked, or None."""
        answers = self.answers()
        self.library = str(answers[0].get("library", ""))
        return refusal(answers)

    def pause(self) -> None:
        """Stops the processes, and returns when they stand."""
        self._signal(signal.SIGSTOP)
        for rank in self._ranks:
            if not rank.stands():
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
                rank.ended(_CLOSE_S)
            if self._job is not None:
                self._job.wait(_CLOSE_S)
        self.kill()

    def kill(self) -> None:
        """Ends the processes at once. May be repeated."""
        self._signal(signal.SIGKILL)
        if self._job is not None:
            self._job.kill()
        for rank in self._ranks:
            rank.close()

    def _signal(self, number: int) -> None:
        for rank in self._ranks:
            rank.signal(number)

    def _send(self, rank: Rank, message: Mapping[str, Any]) -> None:
        try:
            rank.stream.write(json.dumps(message) + "\n")
            rank.stream.flush()
        except OSError:
            raise self._lost(rank) from None

    def _receive(self, rank: Rank, deadline: float) -> dict[str, Any]:
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

    def _lost(self, rank: Rank) -> BenchError:
        how = rank.ended(1)
        if how is None:
            return BenchError(f"{self.impl}, rank {rank.number}: closed its connection")
        return BenchError(f"{self.impl}, rank {rank.number}: its process ended with {how}")
