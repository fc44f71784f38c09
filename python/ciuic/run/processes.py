# SPDX-License-Identifier: Apache-2.0
"""Processes that end with us: process groups, the parent-death signal, and a guardian.

Each rank leads a process group of its own, so that what it starts is ended with it. A child that
has gone into another group or session is known by the job's mark, which stands in the environment
that it was started with. The kernel kills a rank when the thread that started it dies; a guardian,
a small process that only waits for our end, then ends what is left. Nobody signals a process that
was not started by a rank: a group is signalled only while its leader has not been reaped, or while
it has been seen to have members since; a marked process only through a descriptor that was opened
before the mark was looked for.

This file is the guardian's program too, so it imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator

PR_SET_PDEATHSIG = 1
GUARDIAN_GRACE_S = 2.0
"""From TERM to KILL, where the guardian ends what is left."""

_LOOK_S = 0.02
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
        die_with_parent(parent_pid)
        os.setpgid(0, 0)

    return setup


def signal_group(pgid: int, number: int) -> None:
    """Signals a group whose leader has not been reaped."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, number)


def members_of(groups: Iterable[int]) -> dict[int, list[int]]:
    """The processes of each group that live; groups without any are left out."""
    wanted = set(groups)
    found: dict[int, list[int]] = {}
    for pid in _processes():
        state, pgid = _state_of(pid)
        if pgid in wanted and state not in "ZX":
            found.setdefault(pgid, []).append(pid)
    return found


def _processes() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _state_of(pid: int) -> tuple[str, int]:
    """State letter and process group; "X" where it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return fields[0], int(fields[2])
    return "X", -1


def _is_marked(pid: int, mark: str) -> bool:
    """Whether the process was started with ``mark``, "NAME=value", in its environment."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return mark.encode() in file.read().split(b"\0")
    return False


def _signal_marked(mark: str, number: int) -> bool:
    """Signals all that live and bear the mark, but not us; whether there were any."""
    found = False
    for pid in _processes():
        if pid == os.getpid() or not _is_marked(pid, mark):
            continue
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(pid)
            try:
                # The number may have become another process's before it was opened.
                if _is_marked(pid, mark) and _state_of(pid)[0] not in "ZX":
                    signal.pidfd_send_signal(descriptor, number)
                    found = True
            finally:
                os.close(descriptor)
    return found


def end_all(groups: Iterable[int], mark: str, grace_s: float) -> None:
    """TERM, then KILL after ``grace_s``, for what lives of the groups and what bears the mark.
    Returns when nothing does.

    Args:
        groups: Process groups whose leaders we have started.
        mark: "NAME=value" of the environment that the job's processes were started with; "" knows
            none.
        grace_s: Seconds.
    """
    deadline = time.monotonic() + grace_s
    left: Iterable[int] = groups
    number = int(signal.SIGTERM)
    clean = 0
    # One look may miss a process that starts a child and ends meanwhile.
    while clean < (2 if mark else 1):
        left = members_of(left)
        for pgid in left:
            signal_group(pgid, number)
        marked = bool(mark) and _signal_marked(mark, number)
        if not left and not marked:
            clean += 1
            continue
        clean = 0
        time.sleep(_LOOK_S)
        number = int(signal.SIGKILL) if time.monotonic() >= deadline else 0


class Guardian:
    """Ends what it was told of when this process dies without having called ``close``.

    It is a program of its own, so it may be made at any time and holds nothing of ours.
    """

    def __init__(self) -> None:
        # Isolated: neither the user's modules nor site-packages, which take a while. Without the
        # mark of a job that we are part of ourselves: that one must not end it before its work.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CIUIC_")}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", os.path.abspath(__file__)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment,
            bufsize=0,
            start_new_session=True,  # a terminal's signals are for us, not for it
        )

    def watch(self, pgid: int) -> None:
        """Ends this group too."""
        self._say(f"group {pgid}")

    def watch_mark(self, mark: str) -> None:
        """Ends what was started with ``mark``, "NAME=value", in its environment."""
        self._say(f"mark {mark}")

    def close(self) -> None:
        """All have ended: nothing is left to guard."""
        self._say("done")
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        # Without a guardian the job goes on; the parent-death signal still ends the ranks.
        with contextlib.suppress(OSError):
            self._process.stdin.write(line.encode() + b"\n")


def _guard() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    groups: list[int] = []
    mark = ""
    for line in sys.stdin:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "done":
            return
        if word == "group":
            groups.append(int(rest))
        elif word == "mark":
            mark = rest
    end_all(groups, mark, GUARDIAN_GRACE_S)


if __name__ == "__main__":
    _guard()
