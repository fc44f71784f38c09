# SPDX-License-Identifier: Apache-2.0
"""The flight recorders of real processes: killed, stopped, late; what ``ciuic trace`` says of them.

In all of them rank 1 does something before operation 5, an all_reduce."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ciuic.trace.diagnosis import diagnose
from ciuic.trace.job import Job, merge
from ciuic.trace.recording import dumps_of_process, of_paths, parse

DEADLINE_S = 200


def ciuic_trace(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ciuic", "trace", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)


def facts_of(*arguments: str) -> dict[str, Any]:
    done = ciuic_trace(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def living(pids: list[int]) -> Job:
    return merge(parse(d, f"process {pid}") for pid in pids for d in dumps_of_process(pid))


def until(pids: list[int], *kinds: str, waited_s: float = 0) -> None:
    """Reads the processes until all these findings are there, one of them of such a wait."""
    deadline = time.monotonic() + DEADLINE_S
    seen: list[str] = []
    while time.monotonic() < deadline:
        found = diagnose(living(pids))
        seen = [finding.text for finding in found]
        waited_ns = max((finding.waited_ns for finding in found), default=0)
        if set(kinds) <= {finding.kind for finding in found} and waited_ns >= waited_s * 1e9:
            return
        time.sleep(0.02)
    pytest.fail(f"no {kinds} in {seen}")


def finding(facts: dict[str, Any], kind: str) -> dict[str, Any]:
    (found,) = [each for each in facts["findings"] if each["kind"] == kind]
    return found


@pytest.fixture
def launched(programs: Path, environment: Any) -> Iterator[Callable[..., Any]]:
    """Starts ``ciuic run -n 3 traced.py …``; returns it and the ranks' pids when all are ready."""
    started: list[subprocess.Popen[str]] = []

    def launch(*arguments: str, **variables: str) -> tuple["subprocess.Popen[str]", list[int]]:
        command = [sys.executable, "-m", "ciuic", "run", "-n", "3", "--"]
        process = subprocess.Popen(
            [*command, str(programs / "traced.py"), *arguments],
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        pids: dict[int, int] = {}
        while len(pids) < 3:
            line = process.stdout.readline()
            assert line
            if match := re.match(r"\[(\d)\] ready (\d+)", line):
                pids[int(match[1])] = int(match[2])
        return process, [pids[rank] for rank in range(3)]

    yield launch
    for process in started:
        if process.poll() is None:
            process.terminate()  # the launcher ends its ranks, stopped ones too
        process.communicate(timeout=DEADLINE_S)


def test_a_killed_rank_is_named(ciuic_run: Any, tmp_path: Path) -> None:
    result = ciuic_run(3, "traced.py", "kill", TMPDIR=str(tmp_path))
    assert result.returncode == 137, result.stdout + result.stderr
    match = re.search(r"ciuic run: flight recorders are in (\S+); `ciuic trace", result.stderr)
    assert match, result.stderr
    directory = Path(match[1])
    assert directory.parent == tmp_path
    killed = r"ciuic run: rank 1 \(process (\d+) on \S+\) was killed by SIGKILL, after operation 4 "
    said = re.search(killed + r"\(all_reduce, float32, 1000 elements, sum\)", result.stderr)
    assert said, result.stderr

    assert len(list(directory.glob("*.ciuic-trace"))) == 3
    facts = facts_of(str(directory))
    assert finding(facts, "killed")["ranks"] == [1]
    assert facts["groups"][0]["last_calls"]["1"] == 4
    assert [r["rank"] for r in facts["recordings"]] == [0, 1, 2]
    assert facts["recordings"][1]["exit_code"] == 137
    assert facts["recordings"][1]["pid"] == int(said[1])
    assert all(r["torn_events"] <= 1 for r in facts["recordings"])  # the one under way
    assert facts["lateness"][0]["call"] == "all_reduce(float32, 1000 elements, sum)"
    # In words, as the launcher said.
    assert said[0].removeprefix("ciuic run: ") in ciuic_trace(str(directory)).stdout


@pytest.mark.parametrize("of", ["ranks", "launcher"])
def test_a_stopped_rank_is_named(launched: Any, of: str) -> None:
    launcher, pids = launched("stop")
    until(pids, "stopped", "behind")
    which = pids if of == "ranks" else [launcher.pid]
    facts = facts_of("--pid", *map(str, which))
    stopped = finding(facts, "stopped")
    assert stopped["ranks"] == [1]
    assert f"rank 1 (process {pids[1]} on " in stopped["text"]
    assert "is stopped (SIGSTOP" in stopped["text"]
    behind = finding(facts, "behind")
    assert (behind["ranks"], behind["sequence"]) == ([1], 5)
    os.kill(pids[1], signal.SIGCONT)
    out, _ = launcher.communicate(timeout=DEADLINE_S)
    assert launcher.returncode == 0, out
    assert out.count("done") == 3
    assert "flight recorders" not in out  # nobody asked, nothing failed


def test_a_late_rank_is_named(launched: Any, tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    launcher, pids = launched("late", str(tmp_path / "go"), CIUIC_TRACE_DIR=str(dumps))
    until(pids, "behind")
    done = ciuic_trace("--pid", *map(str, pids))
    assert re.search(
        r"^rank 1 has not called operation 5 \(all_reduce, float32, 1000 elements, sum\), which "
        r"ranks? 0( and 2)? ha(s|ve) been in for [0-9.]+ m?s; its last was 4 \(all_reduce, ",
        done.stdout,
    ), done.stdout
    (tmp_path / "go").write_text("")
    out, _ = launcher.communicate(timeout=DEADLINE_S)
    assert launcher.returncode == 0, out
    assert f"flight recorders are in {dumps}" in out
    # Of a job that went well, who was late.
    facts = facts_of(str(dumps))
    assert [f["kind"] for f in facts["findings"]] == []
    (row,) = [r for r in facts["lateness"] if r["call"].startswith("all_reduce")]
    assert row["worst_sequence"] == 5
    job = merge(of_paths([dumps]))
    called = {rank: o.called_ns for rank, o in job.groups[0].calls(5).items()}
    assert max(called, key=lambda rank: called[rank] or 0) == 1


def test_who_interrupts_a_job_that_hangs_is_told_of_whom_it_waited_for(
    launched: Any, tmp_path: Path
) -> None:
    launcher, pids = launched("late", str(tmp_path / "never"))
    until(pids, "behind", waited_s=1.1)
    launcher.send_signal(signal.SIGINT)
    out, _ = launcher.communicate(timeout=DEADLINE_S)
    assert launcher.returncode == 130
    said = r"^ciuic run: rank 1 (had not called|closed its communicator and did not call) operation"
    assert re.search(said + r" 5 \(all_reduce, float32, 1000 elements, sum\), which ", out, re.M), (
        out
    )


def test_calls_that_differ_are_named(ciuic_run: Any, tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    result = ciuic_run(3, "traced.py", "differ", CIUIC_TRACE_DIR=str(dumps))
    assert result.returncode == 1, result.stdout + result.stderr
    # Rank 0 or 2 may be in operation 4 still when the error of operation 5 ends it.
    said = re.search(r"^ciuic run: (operation 5: .*)$", result.stderr, re.MULTILINE)
    assert said, result.stderr
    assert re.search(r"rank 1 (called )?broadcast\(float32, 1000 elements, root 1\)", said[1])
    assert "all_reduce(float32, 1000 elements, sum)" in said[1]
    facts = facts_of(str(dumps), "--torch", str(tmp_path / "torch"))
    assert finding(facts, "mismatch")["text"] == said[1]
    assert finding(facts, "mismatch")["sequence"] == 5
    assert finding(facts, "failed")["ranks"]
    assert len(list((tmp_path / "torch").iterdir())) == 3


def test_without_a_launcher_survivors_dump_themselves(
    processes: Any, job: Any, tmp_path: Path
) -> None:
    """Each process made its memory itself: that of the killed one is gone with it."""
    jobs = job(3)
    ranks = []
    for rank in range(3):
        variables = {**jobs.variables(rank), "CIUIC_TRACE_DIR": str(tmp_path / "dumps")}
        arguments = ("late", str(tmp_path / "never"))
        ranks.append(processes.start("traced.py", *arguments, variables=variables))
    for rank in ranks:
        while "ready" not in (line := rank.stdout.readline()):
            assert line
    pids = [rank.pid for rank in ranks]
    until(pids, "behind")
    ranks[1].kill()
    processes.outputs()
    assert [rank.returncode for rank in ranks] == [1, -signal.SIGKILL, 1]
    facts = facts_of(str(tmp_path / "dumps"))
    assert [r["rank"] for r in facts["recordings"]] == [0, 2]
    failed = finding(facts, "failed")
    assert failed["ranks"] == [0, 2]
    assert 'group "' in failed["text"]
    assert "peer_lost: rank 1" in failed["text"]
    assert finding(facts, "missing")["ranks"] == [1]


def test_a_program_in_a_shell_is_recorded_too(
    ciuic_run: Any, programs: Path, tmp_path: Path
) -> None:
    shell = f"{sys.executable} {programs / 'traced.py'} end; exit 0"
    options = ["--no-python"]
    (tmp_path / "run.sh").write_text(f"#!/bin/sh\n{shell}\n")
    (tmp_path / "run.sh").chmod(0o755)
    dumps = tmp_path / "dumps"
    program = str(tmp_path / "run.sh")
    result = ciuic_run(2, program, options=options, CIUIC_TRACE_DIR=str(dumps))
    assert result.returncode == 0, result.stderr
    facts = facts_of(str(dumps))
    assert [r["rank"] for r in facts["recordings"]] == [0, 1]
    assert [r["exit_code"] for r in facts["recordings"]] == [0, 0]
    assert facts["findings"] == []


def test_none_where_the_settings_say_so(launched: Any, tmp_path: Path) -> None:
    launcher, pids = launched("late", str(tmp_path / "go"), CIUIC_TRACE_EVENTS="0")
    for pid in (*pids, launcher.pid):
        done = ciuic_trace("--pid", str(pid))
        assert done.returncode == 2
        assert "has no flight recorder" in done.stderr
    os.kill(pids[1], signal.SIGKILL)
    out, _ = launcher.communicate(timeout=DEADLINE_S)
    assert launcher.returncode == 137
    assert "flight recorders" not in out
