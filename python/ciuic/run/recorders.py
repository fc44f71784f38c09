# SPDX-License-Identifier: Apache-2.0
"""The ranks' flight recorders, whose memory the launcher makes and holds.

So it can be read when a rank was killed: it is then written to files, and summed up in words.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Mapping

from ciuic import _native
from ciuic.errors import CiuicError
from ciuic.trace import recording
from ciuic.trace.job import merge
from ciuic.trace.report import of_a_hang, sentences

_F_ADD_SEALS = 1033
_F_SEAL_SHRINK, _F_SEAL_GROW = 2, 4
_MOST_SENTENCES = 8
_HANG_S = 1.0  # a job that is interrupted after such a wait may have hung


class Recorders:
    """One memory a rank. Where the settings want none, or there is none to be had, there are none.

    Args:
        world_size: Number of ranks.
    """

    def __init__(self, world_size: int) -> None:
        self._directory: str = _native.config()["trace_dir"]
        self._fds: list[int] = []
        bytes_ = _native.trace_memory_bytes()
        if bytes_ == 0:
            return
        try:
            for _ in range(world_size):
                self._fds.append(_sealed_memory(bytes_))
        except OSError:
            self.close()  # the ranks make their own

    def fds(self, rank: int) -> tuple[int, ...]:
        """What ``rank`` must inherit."""
        return (self._fds[rank],) if self._fds else ()

    def variables(self, rank: int) -> dict[str, str]:
        """What ``rank`` must be told."""
        return {"CIUIC_TRACE_FD": str(self._fds[rank])} if self._fds else {}

    def snapshot(self, exit_codes: Mapping[int, int | None]) -> list[bytes]:
        """Dumps of the ranks as they are now; those that recorded nothing are left out.

        Args:
            exit_codes: By rank, of those that have ended.
        """
        dumps = []
        for rank, fd in enumerate(self._fds):
            with contextlib.suppress(CiuicError, OSError):
                data = recording.of_memory(fd, by_launcher=True, exit_code=exit_codes.get(rank))
                if recording.parse(data, f"rank {rank}").groups:
                    dumps.append(data)
        return dumps

    def report(self, dumps: list[bytes], *, failed: bool, interrupted: bool = False) -> list[str]:
        """Writes the dumps to CIUIC_TRACE_DIR, or if a rank has failed to a new directory.

        Args:
            dumps: What :meth:`snapshot` returned.
            failed: A rank has failed.
            interrupted: The user has ended the job; perhaps because it hung.

        Returns:
            Lines for the user: where they are, and what they say of a failure, or of a hang.
        """
        lines = self._write(dumps, failed) if dumps else []
        if dumps and (failed or interrupted):
            job = merge(recording.parse(data, "a rank") for data in dumps)
            said = sentences(job) if failed else of_a_hang(job, _HANG_S)
            lines += said[:_MOST_SENTENCES]
        return lines

    def _write(self, dumps: list[bytes], failed: bool) -> list[str]:
        directory = self._directory
        if not (directory or failed):
            return []
        try:
            directory = directory or tempfile.mkdtemp(prefix="ciuic-trace-")
            for data in dumps:
                recording.write_dump(directory, data)
        except OSError as error:
            return [f"flight recorders were not written to {directory}: {error.strerror}"]
        return [f"flight recorders are in {directory}; `ciuic trace {directory}` says more"]

    def close(self) -> None:
        """Gives the memory back. May be repeated."""
        for fd in self._fds:
            os.close(fd)
        self._fds = []


def _sealed_memory(bytes_: int) -> int:
    """Of a fixed size, as the ranks ask for before they write to it."""
    fd = os.memfd_create(recording.MEMORY_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(fd, 0, bytes_)
        fcntl.fcntl(fd, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW)
    except OSError:
        os.close(fd)
        raise
    return fd
