# SPDX-License-Identifier: Apache-2.0
"""Ranks on a real GPU (``make test-gpu``). Without one every test here is skipped."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
TIMEOUT_S = 180


def gpus() -> int:
    """How many GPUs torch can use."""
    try:
        import torch
    except ImportError:
        return 0
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if HERE in item.path.parents]
    if here and gpus() == 0:
        for item in here:
            item.add_marker(pytest.mark.skip(reason="torch finds no CUDA GPU"))


@pytest.fixture
def run(environment: Callable[..., dict[str, str]]) -> Callable[..., str]:
    """Runs a command to its end, which is to be good; returns its output."""

    def command(*arguments: str, **more: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            env=environment(**more),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
        return done.stdout

    return command


@pytest.fixture
def checks(tmp_path: Path, environment: Callable[..., dict[str, str]]) -> Callable[..., None]:
    """Runs a file of tests/torch_backend/checks, all ranks on one GPU or each on its own."""
    runner = TESTS / "torch_backend" / "run_checks.py"

    def run_checks(file: str, ranks: int, gpus: str, **more: str) -> None:
        command = [sys.executable, runner, runner.parent / "checks" / file, tmp_path]
        processes = []
        for rank in range(ranks):
            local = "0" if gpus == "one" else str(rank)  # whose GPU torch makes the current one
            places = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": local}
            with (tmp_path / f"{rank}.log").open("w") as log:
                process = subprocess.Popen(
                    command,
                    stdout=log,
                    stderr=log,
                    env=environment(**places, REAL_GPUS=gpus, **more),
                )
            processes.append(process)
        try:
            ended = [process.wait(TIMEOUT_S) for process in processes]
        finally:
            for process in processes:
                process.kill()
        for rank in range(ranks):
            log = (tmp_path / f"{rank}.log").read_text()[-6000:]
            lines = (tmp_path / f"{rank}.jsonl").read_text().splitlines()
            outcomes = dict(json.loads(line) for line in lines)
            failed = {name: text for name, text in outcomes.items() if text != "passed"}
            assert outcomes and not failed, f"rank {rank}: {failed}\n{log}"
        assert ended == [0] * ranks, [log.read_text() for log in tmp_path.glob("*.log")]

    return run_checks
