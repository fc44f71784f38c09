# SPDX-License-Identifier: Apache-2.0
"""Ranks on a real GPU (``make test-gpu``). Without one every test here is skipped."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "torch_backend"))  # ranks_of_checks.py

from ranks_of_checks import run_ranks  # noqa: E402

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

    def run_checks(file: str, ranks: int, gpus: str, **more: str) -> None:
        def of_rank(rank: int) -> dict[str, str]:
            local = "0" if gpus == "one" else str(rank)  # whose GPU torch makes the current one
            return environment(LOCAL_RANK=local, REAL_GPUS=gpus, **more)

        outcomes = run_ranks(file, ranks, tmp_path, of_rank, TIMEOUT_S)
        outcomes.assert_all_passed()
        outcomes.assert_ended_well()

    return run_checks
