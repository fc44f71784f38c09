# SPDX-License-Identifier: Apache-2.0
"""Processes that end with us: process groups, the parent-death signal, and a guardian.

Each rank leads a process group of its own, so that what it starts is ended with it. The kernel
kills a rank when the thread that started it dies; a guardian, a small process that only waits for
our end, then ends what is left of the groups. Nobody signals a process that we did not start: a
group is signalled only while its leader has not been reaped, or while it has been seen to have
members since.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable

PR_SET_PDEATHSIG = 1
_GUARDIAN_GRACE_S = 2.0

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent_pid: int) -> None:
    """In a new child: be killed when the parent's thread that started us ends, or leave now if it
    has."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(128 + signal.SIGKILL)


def child_setup() -> Callable[[], None]:
    """What a rank's process does between fork and exec."""
    parent_pid = os.getpid()

    def setup() -> None:
        os.setpgid(0, 0)
        die_with_parent(parent_pid)

    return setup


def signal_group(pgid: int, number: int) -> None:
    """Signals a group whose leader has not been reaped."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, number)


def members_of(groups: Iterable[int]) -> dict[int, list[int]]:
    """The processes of each group that live; groups without any are left out."""
    wanted = set(groups)
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
            state, pgid = fields[0], int(fields[2])
            if pgid in wanted and state not in "ZX":
                found.setdefault(pgid, []).append(int(name))
    return found


def end_groups(groups: Iterable[int], grace_s: float) -> None:
    """TERM, then KILL after ``grace_s``, for what lives of the groups. Returns when nothing does.
    TERM, then KILL after ``grace_s``, for what lives of the groups. Returns when nothing does."""
    left = members_of(groups)
    for pgid in left:
        signal_group(pgid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = members_of(left)
    while left:
        for pgid in left:
            signal_group(pgid, signal.SIGKILL)
        time.sleep(0.02)
        left = members_of(left)


class Guardian:
    """Ends the groups that it was told of when this process dies without having called ``close``.

    To be made before any thread is.
    """

    def __init__(self) -> None:
        read_end, self._write_end = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._write_end)
                _guard(read_end)
            finally:
                os._exit(0)
        os.close(read_end)

    def watch(self, pgid: int) -> None:
        """Ends this group too."""
        os.write(self._write_end, b"%d\n" % pgid)

    def close(self) -> None:
        """All groups have ended: nothing is left to guard."""
        with contextlib.suppress(OSError):
            os.write(self._write_end, b"0\n")
        os.close(self._write_end)
        os.waitpid(self._pid, 0)


def _guard(read_end: int) -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    # Nobody must wait for our end of a pipe or terminal.
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(3, read_end)
    os.closerange(read_end + 1, 1024)
    groups: list[int] = []
    with os.fdopen(read_end, "rb") as commands:
        for line in commands:
            if line == b"0\n":
                return
            groups.append(int(line))
    end_groups(groups, _GUARDIAN_GRACE_S)
