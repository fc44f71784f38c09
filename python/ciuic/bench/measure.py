# SPDX-License-Identifier: Apache-2.0
"""The order of a run: start all, check all, then rounds of all in random order."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ciuic.bench.groups import BenchError, Group, refusal
from ciuic.bench.mpi_job import MpiJob, find_mpiexec, no_mpiexec
from ciuic.bench.options import BY_MPI, Options, Series
from ciuic.bench.report import Report
from ciuic.run import processes
from ciuic.run.environment import Job

_FEWEST, _MOST = 3, 1000  # calls of one measurement

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class _Measurement:
    series: Series
    count: int
    iterations: int


def run(options: Options, progress: Progress = lambda done, all_: None) -> Report:
    """Measures what ``options`` say. No process of it is left when this returns or raises.

    To be called from the main thread, before any other is started.

    Args:
        options: What to measure.
        progress: Called with the measurements done and all of them.

    Raises:
        BenchError: An implementation failed, its results are wrong, or none can do what was asked.
    """
    report = Report(options)
    with _groups(options, report) as groups:
        plan: list[_Measurement] = []
        for series in options.series():
            if series.impl in groups:
                with _running(groups[series.impl]) as group:
                    plan += _checked(group, series, options, report)
        if not plan:
            raise BenchError(f"nothing can be measured: {'; '.join(report.notes())}")
        _measure(options, groups, plan, report, progress)
    return report


@contextlib.contextmanager
def _groups(options: Options, report: Report) -> Iterator[dict[str, Group]]:
    """A paused group of processes for each implementation that does what is asked."""
    groups: dict[str, Group] = {}
    with contextlib.ExitStack() as stack:
        guardian = processes.Guardian()
        stack.callback(guardian.close)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ciuic-bench-"))
        settings: dict[str, Any] = {
            "operation": options.operation,
            "ranks": options.ranks,
            "counts": options.counts(),
            "dtype": options.dtype,
            "op": options.op,
            "module": options.module,
            "plan": options.plan,
            "through": list(options.through),
            "timeout_s": options.timeout_s,
            "folder": folder,
        }
        for impl in dict.fromkeys(series.impl for series in options.series()):
            job = stack.enter_context(contextlib.closing(Job(options.ranks)))
            if impl == BY_MPI and find_mpiexec(options.mpiexec) is None:
                report.skip_all(impl, no_mpiexec(options.mpiexec))
                continue
            group = _started(impl, job, options, settings, guardian)
            stack.callback(group.kill)
            reason = group.join()
            if reason is None:
                group.pause()
                groups[impl] = group
                report.name_library(impl, group.library)
            else:
                report.skip_all(impl, reason)
        yield groups
        for group in groups.values():
            group.close()


def _started(
    impl: str, job: Job, options: Options, settings: dict[str, Any], guardian: processes.Guardian
) -> Group:
    """Its processes, which the guardian then knows."""
    mpiexec = find_mpiexec(options.mpiexec)
    if impl == BY_MPI and mpiexec is not None:
        guardian.watch_mark(job.mark)
        launched = MpiJob(mpiexec, job, settings["folder"], options.timeout_s)
        return Group(impl, [], settings, options.timeout_s, job=launched)
    environments = [
        {**job.environment(rank), "OMP_NUM_THREADS": "1"} for rank in range(options.ranks)
    ]
    group = Group(impl, environments, settings, options.timeout_s)
    for pid in group.pids:
        guardian.watch(pid)
    return group


@contextlib.contextmanager
def _running(group: Group) -> Iterator[Group]:
    """Lets the group run meanwhile. Where that fails, the run ends and takes the group with it."""
    group.resume()
    yield group
    group.pause()


def _checked(group: Group, series: Series, options: Options, report: Report) -> list[_Measurement]:
    """Checks the result of each size, and finds out how many calls fill the time of a round.

    Raises:
        BenchError: A wrong result.
    """
    plan = []
    for count in options.counts():
        answers = group.ask(do="check", through=series.through, count=count)
        reason = refusal(answers)
        if reason is not None:
            report.skip(series, reason)
            return []
        for rank, answer in enumerate(answers):
            if answer["difference"] >= 0:
                raise BenchError(
                    f"{series.impl} through {series.through}, rank {rank}: wrong result of "
                    f"{options.operation} ({options.dtype}, {options.op}, {count} elements), first "
                    f"in element {answer['difference']}"
                )
        answers = group.ask(do="run", through=series.through, count=count, warm_up=2, iterations=3)
        one_ns = max(sorted(answer["ns"])[1] for answer in answers)
        fitting = int(options.round_ms * 1e6 / max(1, one_ns))
        plan.append(_Measurement(series, count, min(max(fitting, _FEWEST), _MOST)))
    return plan


def _measure(
    options: Options,
    groups: dict[str, Group],
    plan: list[_Measurement],
    report: Report,
    progress: Progress,
) -> None:
    order = random.Random(options.seed)
    for round_ in range(options.rounds):
        shuffled = order.sample(plan, len(plan))
        for number, one in enumerate(shuffled):
            progress(round_ * len(plan) + number, options.rounds * len(plan))
            with _running(groups[one.series.impl]) as group:
                answers = group.ask(
                    do="run",
                    through=one.series.through,
                    count=one.count,
                    # Caches are cold, and the ranks do not go on at the same moment.
                    warm_up=max(1, one.iterations // 10),
                    iterations=one.iterations,
                )
            report.add(
                one.series,
                one.count,
                [answer["ns"] for answer in answers],
                [answer["cpu_ns"] for answer in answers],
            )
    progress(options.rounds * len(plan), options.rounds * len(plan))
