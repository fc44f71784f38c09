# SPDX-License-Identifier: Apache-2.0
"""Ranks that an MPI's own launcher starts; they connect to the bench."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from ciuic.bench.ranks import WORKER, BenchError, Rank
from ciuic.run import processes
from ciuic.run.environment import Job

_SOCKET = "ranks"
_LOOK_S = 0.05
_GRACE_S = 2.0

# Of another launcher than MPI's.
_OF_OTHERS = (
    *("CIUIC_STORE", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    *("LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
)


def find_mpiexec(named: str = "") -> str | None:
    """The launcher of that name; else this Python environment's, else that on ``PATH``."""
    if named:
        return shutil.which(named)
    return shutil.which("mpiexec", path=str(Path(sys.prefix) / "bin")) or shutil.which("mpiexec")


def no_mpiexec(named: str = "") -> str:
    """Why there are no rows."""
    if named:
        return f"--mpiexec {named}: there is no such program"
    return (
        "no mpiexec in this Python environment, nor on PATH: pip install mpich, or name an MPI's "
        "by --mpiexec"
    )


def connect(folder: str) -> socket.socket:
    """In a rank: to the bench that listens in ``folder``."""
    connection = socket.socket(socket.AF_UNIX)
    with _short(folder) as path:
        connection.connect(path)
    return connection


@contextlib.contextmanager
def _short(folder: str):  # type: ignore[no-untyped-def]
    """A path of the socket that is short enough for one, however long the folder's is."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{_SOCKET}"
    finally:
        os.close(descriptor)


class MpiJob:
    """One start of a launcher, and its ranks, numbered as they come: the group then has that order.

    Args:
        mpiexec: Its path.
        job: Gives the mark by which every process of it is found.
        folder: Where they connect; nobody else may write there.
        timeout_s: Until all have.
        log_fd: Where what they print goes.

    Raises:
        BenchError: The launcher ended before, or not all came in time.
    """

    def __init__(
        self, mpiexec: str, job: Job, folder: str, timeout_s: float, log_fd: int = 2
    ) -> None:
        self.ranks: list[Rank] = []
        self._mpiexec = mpiexec
        self._mark = job.mark
        size = job.world_size
        with socket.socket(socket.AF_UNIX) as listener:
            with _short(folder) as path:
                listener.bind(path)
            listener.listen(size)
            listener.settimeout(_LOOK_S)
            self._process = subprocess.Popen(
                [mpiexec, "-n", str(size), *_words(mpiexec, size), *WORKER, folder],
                env=_environment(job),
                stdin=subprocess.DEVNULL,
                stdout=log_fd,
                stderr=log_fd,
                preexec_fn=processes.child_setup(),
            )
            try:
                deadline = time.monotonic() + timeout_s
                while len(self.ranks) < size:
                    self._accept(listener, size, deadline)
            except BaseException:
                self.kill()
                raise

    def _accept(self, listener: socket.socket, size: int, deadline: float) -> None:
        try:
            connection, _ = listener.accept()
            connection.settimeout(None)
            self.ranks.append(_LaunchedRank(len(self.ranks), connection))
            return
        except TimeoutError:
            pass
        came = f"{len(self.ranks)} of {size} ranks had started"
        if (code := self._process.poll()) is not None:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise BenchError(f"ciuic:mpi: {self._mpiexec} ended with {how} when {came}")
        if time.monotonic() > deadline:
            raise BenchError(f"ciuic:mpi: {self._mpiexec}: {came} when the time was up")

    def wait(self, timeout_s: float) -> None:
        """For the launcher's own end, at most so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def kill(self) -> None:
        """Ends all of it. May be repeated."""
        groups = [] if self._process.returncode is not None else [self._process.pid]
        processes.end_all(groups, self._mark, _GRACE_S)
        self._process.wait()
        for rank in self.ranks:
            rank.close()


def _words(mpiexec: str, ranks: int) -> list[str]:
    """Ranks pin themselves, as those of all implementations do."""
    if not _is_open_mpi(mpiexec):
        return []
    crowd = ["--oversubscribe"] if ranks > len(os.sched_getaffinity(0)) else []
    return ["--bind-to", "none", *crowd]


def _is_open_mpi(mpiexec: str) -> bool:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        told = subprocess.run(
            [mpiexec, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
        return "Open MPI" in told.stdout + told.stderr
    return False


def _environment(job: Job) -> dict[str, str]:
    environment: Mapping[str, str] = job.environment(0)
    kept = {name: value for name, value in environment.items() if name not in _OF_OTHERS}
    kept["OMP_NUM_THREADS"] = "1"
    if os.geteuid() == 0:  # who benches as root has decided that
        kept["OMPI_ALLOW_RUN_AS_ROOT"] = kept["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    return kept


class _LaunchedRank(Rank):
    """Not our child: known by a descriptor, so that no other process can be meant."""

    def __init__(self, number: int, connection: socket.socket) -> None:
        who = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, _, _ = struct.unpack("3i", who)
        self._descriptor = os.pidfd_open(pid)
        super().__init__(number, pid, connection)

    def signal(self, number: int) -> None:
        if self._descriptor < 0:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def stands(self) -> bool:
        while not self._has_ended(0.0005):
            if self._is_stopped():
                return True
        return False

    def ended(self, timeout_s: float) -> str | None:
        return "an exit that its launcher knows" if self._has_ended(timeout_s) else None

    def close(self) -> None:
        super().close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _has_ended(self, timeout_s: float) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def _is_stopped(self) -> bool:
        """Whether all of its threads are."""
        with contextlib.suppress(OSError, IndexError):
            return all(
                (task / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "T"
                for task in Path(f"/proc/{self.pid}/task").iterdir()
            )
        return False
