# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of one transport, and gathers what they report.

A rank that finds a wrong result goes on. An error of a call ends the group: the case counts as
failed, and new ranks are started with the next one, a few times.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ciuic.run import processes
from ciuic.run.environment import Job
from ciuic.selftest.cases import RANKS, Case
from ciuic.selftest.rank import read_place, write_place
from ciuic.selftest.routes import Route

SUBGROUP = (3, 1, 0)  # in this order

_LOOK_S = 0.1
_SILENT_S = 120.0  # longer than an operation's time-out
_TIMEOUT_S = 60.0
_STARTS = 4  # of the ranks of a transport, at most
_LEAST_BYTES = 2000  # of what a rank that crashed said last

# The user's settings that do not change what is tested.
_KEPT = ("CIUIC_LOG", "CIUIC_LOG_FILE", "CIUIC_PORT_RANGE", "CIUIC_TRACE_DIR")
_KEPT_OF_MIXED = (*_KEPT, "CIUIC_SOCKET_IFNAME")
_OF_LAUNCHERS = (
    *("CIUIC_", "RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "MASTER_", "TORCHELASTIC_", "OMPI_"),
    *("PMI_", "PMIX_", "SLURM_", "MPI_LOCAL", "JOB_COMPLETION_INDEX"),
)
_NOT_OFFERED = ("UnavailableError",)
_VICTIMS = ("PeerLostError", "AbortedError")  # what other ranks' errors bring about


class Failure(NamedTuple):
    """One case that went wrong: its name without the transport, where, and how."""

    case: str
    rank: int
    text: str


class Outcome(NamedTuple):
    """What became of a transport.

    Attributes:
        missing: Why the machine does not offer it; then there is nothing else.
        done: How many cases were made.
        failures: Those that went wrong, the first on each rank that saw it.
        group: What its group was like.
        arrays: Whose arrays were used.
        seconds: For each operation, of rank 0.
    """

    missing: str
    done: int
    failures: list[Failure]
    group: dict[str, Any]
    arrays: str
    seconds: dict[str, float]


def run_route(route: Route, cases: Sequence[Case], progress: Callable[[int, int], None]) -> Outcome:
    """Makes the cases over a transport.

    Args:
        route: The transport.
        cases: Of it, in order.
        progress: Is told now and then how many were made, and how many went wrong.
    """
    failures: list[Failure] = []
    group: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    arrays = ""
    begin = 0
    for _ in range(_STARTS):
        tell = functools.partial(_tell, progress, begin, len(failures))
        reports, places = _run_once(route, cases[begin:], tell)
        first = reports[0]
        group = group or first.get("group", {})
        arrays = arrays or first.get("arrays", "")
        for operation, taken in first.get("seconds", {}).items():
            seconds[operation] = seconds.get(operation, 0.0) + taken
        for report in reports:
            failures += [
                Failure(found["case"], report["rank"], found["text"])
                for found in report["failures"]
            ]
        culprit = blamed(reports, places)
        if culprit is None:
            return Outcome("", len(cases), failures, group, arrays, seconds)
        rank, at, error = culprit
        if at < 0 and error["type"] in _NOT_OFFERED and begin == 0:
            return Outcome(error["text"], 0, [], {}, arrays, {})
        text = f"{error['type']}: {error['text']}"
        if at < 0:
            failures.append(Failure("join", rank, text))
            return Outcome("", begin + 1, failures, group, arrays, seconds)
        name = cases[begin + at].name if begin + at < len(cases) else "end"
        failures.append(Failure(name, rank, text))
        begin += at + 1
        if begin >= len(cases):
            break
    return Outcome("", min(begin, len(cases)), failures, group, arrays, seconds)


def _tell(
    progress: Callable[[int, int], None], made: int, failed: int, at: int, wrong: int
) -> None:
    """Of ranks that were started after ``made`` cases, of which ``failed`` went wrong."""
    progress(made + max(0, at), failed + wrong)


def blamed(
    reports: Sequence[dict[str, Any]], places: Sequence[int]
) -> tuple[int, int, dict[str, Any]] | None:
    """Whose error ended the group, at which case, and what it was; None where none did."""
    found = []
    for report, place in zip(reports, places, strict=True):
        error = report.get("error")
        if error is not None:
            at = error.get("at", place)
            found.append((error["type"] in _VICTIMS, at, report["rank"], error))
    if not found:
        return None
    _, at, rank, error = min(found, key=lambda each: each[:3])
    return rank, at, error


def _run_once(
    route: Route, cases: Sequence[Case], progress: Callable[[int, int], None]
) -> tuple[list[dict[str, Any]], list[int]]:
    """Every rank's report, and the case that it was at last."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ciuic-selftest-")))
        places = os.open(folder / "places", os.O_RDWR | os.O_CREAT, 0o600)
        stack.callback(os.close, places)
        for rank in range(RANKS):
            write_place(places, rank, -1, 0)
        plan = folder / "plan.json"
        plan.write_text(json.dumps(_plan(route, cases, folder / "places")), encoding="utf-8")
        command = [sys.executable, "-m", "ciuic.selftest.rank", str(plan)]
        kept = _KEPT_OF_MIXED if route.name == "mixed" else _KEPT
        started = stack.enter_context(ranks(command, folder, {**_kept(kept), **route.variables}))
        silent = _watch(started, places, progress)
        at = [read_place(places, rank)[0] for rank in range(RANKS)]
        return [_report(started[r], folder, r, silent) for r in range(RANKS)], at


def _plan(route: Route, cases: Sequence[Case], places: Path) -> dict[str, Any]:
    return {
        "cases": [dataclasses.astuple(case) for case in cases],
        "places": str(places),
        "ranks": RANKS,
        "subgroup": SUBGROUP,
        "timeout_s": _TIMEOUT_S,
        "demanded": dict(route.demanded),
        "variables_of_rank": [route.variables_of_rank(rank) for rank in range(RANKS)],
    }


def _kept(names: Sequence[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


@contextlib.contextmanager
def ranks(
    command: Sequence[str], folder: Path, variables: Mapping[str, str], count: int = RANKS
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """``count`` ranks of a job, whose output goes to ``out.RANK`` and ``err.RANK`` in ``folder``.
    At the end none of their processes is left.
    """
    guardian = processes.Guardian()
    job = Job(count)
    started: list[subprocess.Popen[bytes]] = []
    plain = {k: v for k, v in os.environ.items() if not k.startswith(_OF_LAUNCHERS)}
    if not {"", os.getcwd()} & set(
        sys.path
    ):  # so a source tree here is not what we were taken from
        plain["PYTHONSAFEPATH"] = "1"
    try:
        guardian.watch_mark(job.mark)
        for rank in range(count):
            with (
                open(folder / f"out.{rank}", "wb") as out,
                open(folder / f"err.{rank}", "wb") as err,
            ):
                started.append(
                    subprocess.Popen(
                        command,
                        env={**plain, **job.variables(rank), **variables},
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=err,
                        preexec_fn=processes.child_setup(),
                    )
                )
            guardian.watch(started[-1].pid)
        yield started
    finally:
        # Not reaped before, so that their groups keep their numbers.
        processes.end_all([process.pid for process in started], job.mark, 0.0)
        for process in started:
            process.wait()
        job.close()
        guardian.close()


def _watch(
    started: Sequence[subprocess.Popen[bytes]], places: int, progress: Callable[[int, int], None]
) -> bool:
    """Returns when all have ended; True where they made no progress for too long, and were not
    waited for."""
    last, since = [(-2, 0)], time.monotonic()
    while not all(_has_ended(process) for process in started):
        now = [read_place(places, rank) for rank in range(len(started))]
        if now != last:
            last, since = now, time.monotonic()
            progress(min(at for at, _ in now), max(bad for _, bad in now))
        if time.monotonic() - since > _SILENT_S:
            return True
        time.sleep(_LOOK_S)
    return False


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _report(
    process: subprocess.Popen[bytes], folder: Path, rank: int, silent: bool
) -> dict[str, Any]:
    lines = (folder / f"out.{rank}").read_text("utf-8", "replace").splitlines()
    with contextlib.suppress(ValueError, IndexError):
        report: dict[str, Any] = json.loads(lines[-1])
        return report
    said = (folder / f"err.{rank}").read_text("utf-8", "replace").strip()[-_LEAST_BYTES:]
    ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        how = f"made no progress for {_SILENT_S:.0f} s" if silent else "has not ended"
    elif ended.si_code == os.CLD_EXITED:
        how = f"ended with exit code {ended.si_status}"
    else:
        how = f"was ended by signal {ended.si_status}"
    text = f"its process {how}" + (f"; it said:\n{said}" if said else "")
    return {"rank": rank, "failures": [], "error": {"type": "Crash", "text": text}}
