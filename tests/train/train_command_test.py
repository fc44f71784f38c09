# SPDX-License-Identifier: Apache-2.0
"""The command line of train.py: starting the ranks, results, bad arguments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the training example needs PyTorch")
pytest.importorskip("transformers", reason="the training example needs transformers")

_TRAIN = Path(__file__).resolve().parents[2] / "examples" / "train.py"


Train = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def train(environment: Callable[..., dict[str, str]]) -> Train:
    """Runs train.py as a user would, and returns what came of it."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(_TRAIN), *arguments],
            env=environment(**variables),
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )

    return run


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("comm", ["ciuic", "gloo"])
def test_the_users_line_trains_on_two_ranks(train: Train, comm: str, tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    done = train(
        *("--model", "deepseek", "--num_gpus", "0", "--nproc", "2", "--comm", comm),
        *("--steps", "8", "--batch", "4", "--sequence", "32", "--json", str(results)),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(results.read_text())
    assert found["ranks"] == 2
    assert found["backend"] == comm
    assert found["steps"] == 8
    assert found["loss_last"] < found["loss_first"]
    assert found["val_loss"] < found["loss_first"]
    assert found["tokens_per_s"] > 0
    assert 0 <= found["comm_share"] < 1
    assert "step 8/8" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr  # no bar where there is no terminal
    assert os.listdir(tmp_path) == ["results.json"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_checkpoint_and_resume(train: Train, tmp_path: Path) -> None:
    common = ("--nproc", "2", "--batch", "4", "--sequence", "32", "--checkpoint", str(tmp_path))
    first = train(*common, "--steps", "5", "--checkpoint_every", "2")
    assert first.returncode == 0, first.stdout + first.stderr
    assert sorted(os.listdir(tmp_path)) == ["step_00000004.pt", "step_00000005.pt"]
    again = train(*common, "--steps", "7", "--resume")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "step 6/7" in again.stdout
    assert sorted(os.listdir(tmp_path)) == ["step_00000005.pt", "step_00000007.pt"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--batch 3 --nproc 2", "--batch 3 cannot be shared evenly by 2 ranks: try 2"),
        ("--batch 2 --nproc 4", "--batch 2 cannot be shared evenly by 4 ranks: try 4"),
        ("--parallel fsdp --checkpoint /tmp/x", "--parallel fsdp: the weights are cut"),
        ("--num_gpus 2 --nproc 2", "give one"),
        ("--num_gpus -1", "--num_gpus -1: must not be negative"),
        ("--nproc 0", "--nproc 0: must be at least 1"),
        ("--steps 0", "--steps 0: must be at least 1"),
        ("--seed 2147483648", "--seed 2147483648: must be less than"),
        ("--seconds 0", "--seconds 0: must be more than 0"),
        ("--lr nan", "--lr nan: must be more than 0"),
        ("--resume", "need --checkpoint DIR"),
        ("--model llama", "invalid choice: 'llama'"),
        ("--precision float16", "invalid choice: 'float16'"),
        ("--comm nccl", "invalid choice: 'nccl'"),
    ],
)
def test_bad_arguments_end_before_anything_starts(train: Train, line: str, message: str) -> None:
    done = train(*line.split())
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_gpus_that_are_not_there(train: Train) -> None:
    done = train("--model", "deepseek", "--num_gpus", "8", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert "--num_gpus 8: this machine has 0 GPUs" in done.stderr
    assert "--num_gpus 0 --nproc 2" in done.stderr
    assert "Traceback" not in done.stderr


def test_ranks_of_a_launcher_that_differ_from_the_line(train: Train) -> None:
    done = train("--nproc", "2", RANK="0", WORLD_SIZE="4")
    assert done.returncode == 2
    assert "--nproc 2, but the launcher started 4 ranks" in done.stderr


def test_gpus_that_differ_from_the_ranks_of_a_launcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from deepseek import launch, options

    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    launch.check_joined(options.parse(["--num_gpus", "4"]), 8)
    with pytest.raises(options.OptionError, match="--num_gpus 2, but the launcher started 4 ranks"):
        launch.check_joined(options.parse(["--num_gpus", "2"]), 8)
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    launch.check_joined(options.parse(["--num_gpus", "8"]), 8)
    assert options.ranks_of(options.parse(["--num_gpus", "3"])) == 3
    assert options.ranks_of(options.parse(["--nproc", "4"])) == 4
    assert options.ranks_of(options.parse([])) == 2
