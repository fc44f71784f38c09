# SPDX-License-Identifier: Apache-2.0
"""The ranks' output on one terminal: line by line, marked by rank, the first failure first.

Lines go out when they are complete, those of stdout to stdout, those of stderr to stderr. An error
report on stderr (it starts with a line such as ``Traceback (most recent call last):``) is held
until it is whole, and where the job fails, until it is known which rank failed first: its report
comes first, then those of the ranks that only lost it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import BinaryIO

_REPORT_STARTS = (b"Traceback (most recent call last):", b"terminate called", b"Fatal Python error")

# What a rank says that only lost its peers.
_OF_VICTIMS = (b"PeerLostError", b"AbortedError", b"Connection closed by peer", b"Connection reset")

_LONGEST_LINE = 1 << 16
_LONGEST_REPORT = 1 << 20  # bytes that are held
_HOLD_S = 2.0  # a report of a rank that lives on goes out when it was quiet for so long


class _Lines:
    """Cuts a stream of bytes into lines, ends included (``\\n``, or ``\\r`` of a progress bar)."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        lines = (self._rest + data).replace(b"\r\n", b"\n").splitlines(keepends=True)
        self._rest = b""
        if lines and not lines[-1].endswith((b"\n", b"\r")) and len(lines[-1]) < _LONGEST_LINE:
            self._rest = lines.pop()
        return lines

    def end(self) -> list[bytes]:
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


class Report:
    """An error report that is held."""

    def __init__(self, now: float) -> None:
        self.began = now
        self.last = now
        self.lines: list[bytes] = []
        self.size = 0

    def add(self, line: bytes, now: float) -> None:
        self.last = now
        self.lines.append(line)
        self.size += len(line)

    def tells_of_a_victim(self) -> bool:
        """Whether another rank's failure is what it reports."""
        return any(word in line for line in self.lines[-8:] for word in _OF_VICTIMS)


class Output:
    """Writes what the ranks of one job write.

    Args:
        world_size: Number of ranks.
        stdout, stderr: Where to.
        prefix: Whether each line is marked ``[rank] ``.
        clock: Seconds; tests give their own.
    """

    def __init__(
        self,
        world_size: int,
        stdout: BinaryIO,
        stderr: BinaryIO,
        *,
        prefix: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = {"stdout": stdout, "stderr": stderr}
        self._clock = clock
        self._lines = {(r, name): _Lines() for r in range(world_size) for name in self._files}
        width = len(str(world_size - 1))
        self._marks = [f"[{r:>{width}}] ".encode() if prefix else b"" for r in range(world_size)]
        self._reports: dict[int, Report] = {}

    def feed(self, rank: int, stream: str, data: bytes) -> None:
        """Takes what ``rank`` wrote; empty ``data`` is the stream's end."""
        lines = self._lines[rank, stream]
        for line in lines.feed(data) if data else lines.end():
            self._take(rank, stream, line)
        self._files[stream].flush()

    def report(self, rank: int) -> Report | None:
        """What is held of ``rank``."""
        return self._reports.get(rank)

    def release(self, rank: int) -> None:
        """Writes what is held of ``rank``."""
        report = self._reports.pop(rank, None)
        if report is not None:
            for line in report.lines:
                self._write(rank, "stderr", line)
            self._files["stderr"].flush()

    def release_quiet(self) -> None:
        """Writes reports that have been quiet for long: their ranks caught the error and go on."""
        now = self._clock()
        for rank in [r for r, report in self._reports.items() if now - report.last > _HOLD_S]:
            self.release(rank)

    def release_all(self) -> None:
        """Writes all reports, in the order in which they began."""
        for rank in sorted(self._reports, key=lambda r: self._reports[r].began):
            self.release(rank)

    def say(self, text: str) -> None:
        """A line of the launcher's own, on stderr."""
        with contextlib.suppress(OSError):
            self._files["stderr"].write(f"ciuic run: {text}\n".encode())
            self._files["stderr"].flush()

    def _take(self, rank: int, stream: str, line: bytes) -> None:
        if stream == "stderr":
            report = self._reports.get(rank)
            if report is None and line.startswith(_REPORT_STARTS):
                report = self._reports[rank] = Report(self._clock())
            if report is not None:
                report.add(line, self._clock())
                if report.size > _LONGEST_REPORT:
                    self.release(rank)
                return
        self._write(rank, stream, line)

    def _write(self, rank: int, stream: str, line: bytes) -> None:
        end = b"" if line.endswith((b"\n", b"\r")) else b"\n"
        self._files[stream].write(self._marks[rank] + line + end)
