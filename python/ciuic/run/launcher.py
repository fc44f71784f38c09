# SPDX-License-Identifier: Apache-2.0
"""``ciuic run``: starts the ranks of a program on this machine and stays until they have ended."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import IO

from ciuic.errors import InvalidArgumentError, UnavailableError
from ciuic.run import processes
from ciuic.run.environment import Job
from ciuic.run.output import Output
from ciuic.run.recorders import Recorders

GRACE_S = 3.0
"""From TERM to KILL."""

_SETTLE_S = 1.0  # for a rank whose error report began before that of the rank that ended first
_TICK_S = 0.1
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def launch(command: Sequence[str], nprocs: int, *, init: bool = False, prefix: bool = True) -> int:
    """Runs ``command`` in ``nprocs`` ranks, and returns when none of their processes is left.

    Signals INT, TERM and HUP are handed on to the ranks; a rank that fails takes the others with
    it. To be called from the main thread.

    Args:
        command: Program and arguments, alike for all ranks.
        nprocs: Number of ranks.
        init: Whether ``import ciuic`` in a rank initialises torch.distributed.
        prefix: Whether output lines are marked by rank.

    Returns:
        0 where all ranks returned 0; else the exit code of the rank that failed first, 128 + n
        where signal n ended it; 128 + n too where signal n came to this process.

    Raises:
        ValueError: Less than one rank.
        ciuic.UnavailableError: The program cannot be started.
    """
    if nprocs < 1:
        raise InvalidArgumentError(f"{nprocs} ranks: at least one is needed")
    return _Launch(command, nprocs, init, prefix).run()


class _Rank:
    def __init__(self, number: int, process: subprocess.Popen[bytes]) -> None:
        self.number = number
        self.process = process
        self.exit_code: int | None = None
        self.ended_at = 0.0

    @property
    def pid(self) -> int:
        return self.process.pid

    def look(self) -> bool:
        """Whether it has ended just now. It is not reaped: its process group keeps its number."""
        if self.exit_code is not None:
            return False
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return False
        self.ended_at = time.monotonic()
        by_itself = ended.si_code == os.CLD_EXITED
        self.exit_code = ended.si_status if by_itself else 128 + ended.si_status
        return True


class _Launch:
    def __init__(self, command: Sequence[str], nprocs: int, init: bool, prefix: bool) -> None:
        self._command = list(command)
        self._nprocs = nprocs
        self._init = init
        self._output = Output(
            nprocs, sys.stdout.buffer, sys.stderr.buffer, prefix=prefix and nprocs > 1
        )
        self._recorders = Recorders(nprocs)
        self._ranks: list[_Rank] = []
        self._selector = selectors.DefaultSelector()
        self._began = time.monotonic()
        self._ended_first: _Rank | None = None  # of those that failed
        self._failed: _Rank | None = None  # the one that is to blame
        self._signal: int | None = None  # that came to us
        self._kill_at: float | None = None

    def run(self) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        guardian = processes.Guardian()
        try:
            with contextlib.closing(Job(self._nprocs)) as job, self._signals():
                guardian.watch_mark(job.mark)
                try:
                    for rank in range(self._nprocs):
                        self._start(job, rank, guardian)
                    while self._busy():
                        self._step()
                finally:
                    self._clear_up(job.mark)
                    self._save_recorders()
        finally:
            guardian.close()
            self._recorders.close()
        self._output.release_all()
        return self._exit_code()

    # ---- starting ----

    def _start(self, job: Job, rank: int, guardian: processes.Guardian) -> None:
        environment = job.environment(rank)
        environment.setdefault("PYTHONUNBUFFERED", "1")
        environment.update(self._recorders.variables(rank))
        environment.pop("CIUIC_INIT", None)
        if self._init:
            environment["CIUIC_INIT"] = "1"
        # Rank 0 gets what is piped to us; a terminal stays ours, for a rank is not its foreground.
        inherits = rank == 0 and not os.isatty(0) if _is_open(0) else False
        try:
            process = subprocess.Popen(
                self._command,
                env=environment,
                stdin=None if inherits else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=self._recorders.fds(rank),
                preexec_fn=processes.child_setup(),
            )
        except OSError as error:
            raise UnavailableError(f"cannot start {self._command[0]!r}: {error.strerror}") from None
        guardian.watch(process.pid)
        self._ranks.append(_Rank(rank, process))
        for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, (rank, name))

    @contextlib.contextmanager
    def _signals(self):  # type: ignore[no-untyped-def]
        """Wakes the selector on signals, and takes note of those that are handed on."""
        receiver, sender = socket.socketpair()
        for end in (receiver, sender):
            end.setblocking(False)
        self._selector.register(receiver, selectors.EVENT_READ, None)
        previous_fd = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        previous = {n: signal.signal(n, self._on_signal) for n in (*_FORWARDED, signal.SIGCHLD)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(previous_fd)
            self._selector.unregister(receiver)
            receiver.close()
            sender.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGCHLD:
            return
        first = self._signal is None
        self._signal = self._signal or number
        # The second one means it: do not wait for the ranks' own clearing up.
        self._signal_ranks(number if first else signal.SIGKILL)
        if first:
            self._kill_at = time.monotonic() + GRACE_S

    # ---- while they run ----

    def _busy(self) -> bool:
        return any(rank.exit_code is None for rank in self._ranks)

    def _step(self) -> None:
        self._read(_TICK_S)
        for rank in self._ranks:
            if rank.look():
                self._drain(rank)
                if rank.exit_code != 0 and self._ended_first is None:
                    self._ended_first = rank
        now = time.monotonic()
        if self._ended_first is not None and self._failed is None:
            failed = self._judge(now)
            if failed is not None:
                self._blame(failed)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self._signal_ranks(signal.SIGKILL)
        if self._ended_first is None and self._signal is None:
            self._output.release_quiet()

    def _judge(self, now: float) -> _Rank | None:
        """Which rank failed first; None: to be seen, when others have ended that are about to.

        It is not always the one that ended first. A rank that raised an error tells its peers when
        it closes; they may end before it does. So one whose report began earlier is waited for, and
        a rank that reports the loss of a peer is not to blame while another one may be.
        """
        assert self._ended_first is not None
        settled = now >= self._ended_first.ended_at + _SETTLE_S
        since: dict[int, float] = {}  # of those that are no victims
        for rank in self._ranks:
            report = self._output.report(rank.number)
            if report is not None and not report.tells_of_a_victim():
                since[rank.number] = report.began
            elif report is None and rank.exit_code:
                since[rank.number] = rank.ended_at
        in_order = [self._ranks[number] for number in sorted(since, key=lambda n: since[n])]
        failed = [rank for rank in in_order if rank.exit_code]
        if failed and (settled or failed[0] is in_order[0] or in_order[0].exit_code == 0):
            return failed[0]
        if settled or not self._busy():
            return failed[0] if failed else self._ended_first
        return None

    def _blame(self, failed: _Rank) -> None:
        """Its report comes first; then the others are ended."""
        assert failed.exit_code is not None
        self._failed = failed
        self._output.release(failed.number)
        if self._signal is not None:
            return
        how = f"exit code {failed.exit_code}"
        if failed.exit_code > 128:
            with contextlib.suppress(ValueError):
                how = f"signal {signal.Signals(failed.exit_code - 128).name}"
        when = f"after {time.monotonic() - self._began:.1f} s"
        rest = "; ending the others" if self._busy() else ""
        self._output.say(
            f"rank {failed.number} (process {failed.pid}) failed with {how} {when}{rest}"
        )
        self._kill_at = time.monotonic() + GRACE_S
        recorded = self._recorders.snapshot(self._exit_codes())  # what they do before they are told
        self._signal_ranks(signal.SIGTERM)
        self._say_recorded(recorded, failed=True)

    def _exit_codes(self) -> dict[int, int | None]:
        return {rank.number: rank.exit_code for rank in self._ranks}

    def _save_recorders(self) -> None:
        """Where no rank has failed: for who has named a directory, or has lost patience."""
        if self._failed is None or self._signal is not None:
            self._say_recorded(self._recorders.snapshot(self._exit_codes()), failed=False)

    def _say_recorded(self, dumps: list[bytes], *, failed: bool) -> None:
        interrupted = self._signal is not None
        for line in self._recorders.report(dumps, failed=failed, interrupted=interrupted):
            self._output.say(line)

    def _signal_ranks(self, number: int) -> None:
        for rank in self._ranks:
            if rank.exit_code is None:
                processes.signal_group(rank.pid, number)

    # ---- their output ----

    def _read(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    key.fileobj.recv(4096)  # type: ignore[union-attr]
            else:
                self._take(key.fileobj, *key.data)  # type: ignore[arg-type]

    def _take(self, pipe: IO[bytes], rank: int, name: str) -> bool:
        """Hands on what the pipe holds, up to a bound; whether there may be more."""
        try:
            data = os.read(pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return False
        self._output.feed(rank, name, data)
        if not data:
            self._selector.unregister(pipe)
            pipe.close()
        return bool(data)

    def _drain(self, rank: _Rank) -> None:
        """All that a rank that has ended left in its pipes."""
        for name, pipe in (("stdout", rank.process.stdout), ("stderr", rank.process.stderr)):
            if pipe is not None and not pipe.closed:
                while self._take(pipe, rank.number, name):
                    pass

    # ---- the end ----

    def _clear_up(self, mark: str) -> None:
        """No process of ours is left, and no output of theirs lost."""
        processes.end_all([rank.pid for rank in self._ranks], mark, GRACE_S)
        for rank in self._ranks:
            self._drain(rank)
            for name, pipe in (("stdout", rank.process.stdout), ("stderr", rank.process.stderr)):
                if pipe is not None and not pipe.closed:
                    self._output.feed(rank.number, name, b"")
                    self._selector.unregister(pipe)
                    pipe.close()
            rank.process.wait()
        if self._ended_first is not None and self._failed is None:
            self._blame(self._judge(time.monotonic()) or self._ended_first)

    def _exit_code(self) -> int:
        if self._signal is not None:
            return 128 + self._signal
        if self._failed is not None and self._failed.exit_code is not None:
            return self._failed.exit_code
        return 0


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
