# SPDX-License-Identifier: Apache-2.0
"""``ciuic.spawn``: runs a function in several ranks of this machine, of a script or a notebook."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ciuic.errors import RankFailedError

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
        raise ValueError(f"nprocs={nprocs} is less than 1")
    import multiprocessing

    from ciuic.run.environment import Job

    methods = multiprocessing.get_context(start_method or _start_method_for(fn))
    with contextlib.closing(Job(nprocs)) as job:
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
                ranks.append(process)
                ends.append(ours)
            return _collect(ranks, ends)
        finally:
            _end(ranks)
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
    process.join(_GRACE_S)
    code = process.exitcode
    code = 1 if code is None else 128 - code if code < 0 else code
    text = f"rank {rank} (process {process.pid}) failed with exit code {code}"
    return RankFailedError(f"{text}:\n{report}" if report else text, rank, code)


def _end(ranks: Sequence[BaseProcess]) -> None:
    for process in ranks:
        if process.exitcode is None and sys.exc_info()[0] is not None:
            process.terminate()
    for process in ranks:
        process.join(_GRACE_S)
        if process.exitcode is None:
            process.kill()
            process.join()
