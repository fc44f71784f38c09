# SPDX-License-Identifier: Apache-2.0
"""``ciuic.spawn``: runs a function in several ranks of this machine, of a script or a notebook."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ciuic.errors import InvalidArgumentError, RankFailedError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

_GRACE_S = 3.0


def spawn(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int = 2,
    *,
    start_method: str | None = None,
) -> list[Any]:
    """Run ``fn(rank, *args)`` in ``nprocs`` new processes, and wait for them.

    In each, :class:`ciuic.CiuicContext` and ``torch.distributed.init_process_group`` find their
    peers by themselves, as under ``ciuic run``.

    Args:
        fn: A function. Where processes are spawned it must be importable, and a script needs the
            usual ``if __name__ == "__main__":``.
        args: What it gets after the rank; picklable where processes are spawned.
        nprocs: Number of ranks.
        start_method: ``"spawn"`` or ``"fork"``. ``None``: ``"fork"`` for a function of a notebook
            or of the interpreter's prompt, which no other process could import, else ``"spawn"``.

    Returns:
        What ``fn`` returned, in rank order. Must be picklable.

    Raises:
        ValueError: Less than one rank.
        ciuic.RankFailedError: A rank failed; the message has its traceback. The others were ended.
    """
    if nprocs < 1:
        raise InvalidArgumentError(f"nprocs={nprocs} is less than 1")
    import multiprocessing

    from ciuic.run.environment import Job
    from ciuic.run.processes import Guardian

    methods = multiprocessing.get_context(start_method or _start_method_for(fn))
    with contextlib.closing(Guardian()) as guardian, contextlib.closing(Job(nprocs)) as job:
        ranks: list[BaseProcess] = []
        ends: list[Connection] = []
        try:
            for rank in range(nprocs):
                ours, theirs = methods.Pipe(duplex=False)
                process = methods.Process(  # type: ignore[attr-defined]
                    target=_run_rank, args=(os.getpid(), rank, fn, tuple(args), theirs)
                )
                with _environment(job.variables(rank)):
                    process.start()
                theirs.close()
                guardian.watch(process.pid)
                ranks.append(process)
                ends.append(ours)
            results = _collect(ranks, ends)
        except BaseException as error:
            by_hand = isinstance(error, KeyboardInterrupt)
            _end(ranks, signal.SIGINT if by_hand else signal.SIGTERM)
            raise
        else:
            _end(ranks)
            return results
        finally:
            for end in ends:
                end.close()


def _start_method_for(fn: Callable[..., Any]) -> str:
    if getattr(fn, "__module__", None) != "__main__":
        return "spawn"
    main = sys.modules["__main__"]
    return "spawn" if os.path.isfile(getattr(main, "__file__", None) or "") else "fork"


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set while a process starts: libraries that it imports first read theirs at once."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _run_rank(
    parent_pid: int, rank: int, fn: Callable[..., Any], args: tuple[Any, ...], end: Connection
) -> None:
    from ciuic import context
    from ciuic.run import processes

    processes.die_with_parent(parent_pid)
    os.setpgid(0, 0)  # what it starts is ended with it
    context.forget_contexts()
    try:
        result = fn(rank, *args)
        context.close_contexts()
        end.send((True, result))
    except BaseException:
        import traceback

        report = traceback.format_exc()
        with contextlib.suppress(OSError):
            end.send((False, report))
        context.close_contexts()
        sys.exit(1)


def _collect(ranks: Sequence[BaseProcess], ends: Sequence[Connection]) -> list[Any]:
    from multiprocessing import connection

    results: list[Any] = [None] * len(ranks)
    waiting = dict(enumerate(ends))
    while waiting:
        connection.wait(list(waiting.values()))
        for rank, end in list(waiting.items()):
            if not end.poll():
                continue
            del waiting[rank]
            try:
                good, value = end.recv()
            except EOFError:
                good, value = False, ""
            if not good:
                raise _failure(rank, ranks[rank], value)
            results[rank] = value
    return results


def _failure(rank: int, process: BaseProcess, report: str) -> RankFailedError:
    code = _exit_code_of(process)
    text = f"rank {rank} (process {process.pid}) failed with exit code {code}"
    return RankFailedError(f"{text}:\n{report}" if report else text, rank, code)


def _exit_code_of(process: BaseProcess) -> int:
    """Waits for its end; 128 + n where signal n ended it, 1 where it does not end. Not reaped, so
    that its process group keeps its number."""
    deadline = time.monotonic() + _GRACE_S
    with contextlib.suppress(ChildProcessError):  # somebody else has reaped it
        assert process.pid is not None
        while True:
            ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                by_itself = ended.si_code == os.CLD_EXITED
                return ended.si_status if by_itself else 128 + ended.si_status
            if time.monotonic() >= deadline:
                return 1
            time.sleep(0.01)
    code = process.exitcode
    return 1 if code is None else 128 - code if code < 0 else code


def _end(ranks: Sequence[BaseProcess], number: int = 0) -> None:
    """Returns when no process of the ranks is left, nor any that they started in their groups.

    Args:
        ranks: Theirs.
        number: A signal for those that are still there; 0 lets them end by themselves.
    """
    from multiprocessing import connection

    from ciuic.run import processes

    groups = [process.pid for process in ranks if process.pid is not None]
    for pid in groups if number else ():
        processes.signal_group(pid, number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)  # where it has no group of its own yet
    deadline = time.monotonic() + _GRACE_S
    running = [process.sentinel for process in ranks]
    while running and time.monotonic() < deadline:
        for sentinel in connection.wait(running, deadline - time.monotonic()):
            running.remove(sentinel)  # type: ignore[arg-type]
    processes.end_all(groups, "", 0.0 if number else _GRACE_S)
    for process in ranks:
        if process.is_alive():
            process.kill()
        process.join()
