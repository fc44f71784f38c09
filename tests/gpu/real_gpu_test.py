# SPDX-License-Identifier: Apache-2.0
"""What only a real GPU can show, in a few minutes; tools/test_gpu.sh says what it needs.

One rank by NCCL, ranks that share the GPU by way of the host, CUDA tensors through
torch.distributed, and the training. Where there are more GPUs, each rank has one, by NCCL.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ranks_of_checks import NCCL_HAS_NOT

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = str(ROOT / "tests" / "gpu" / "programs" / "operations.py")
TRAIN = str(ROOT / "examples" / "train.py")


def count_of_gpus() -> int:
    import torch

    return torch.cuda.device_count()


def test_one_rank_by_nccl(run) -> None:
    out = run("-m", "ciuic", "run", "-n", "1", OPERATIONS, "nccl")
    assert "operations are good" in out


def test_two_ranks_on_one_gpu_by_way_of_the_host(run) -> None:
    out = run("-m", "ciuic", "run", "-n", "2", OPERATIONS, "native", DEVICE="cuda:0")
    assert out.count("operations are good") == 2


def test_torch_operations_on_one_gpu(checks) -> None:
    checks("operations.py", 3, "one", LEFT_OUT="check_sparse")


def test_torch_streams_memory_and_ddp_on_one_gpu(checks) -> None:
    checks("gpus.py", 2, "one", GROUP_IS_BY="native")


def test_torch_streams_are_ordered_without_the_host(checks) -> None:
    checks("gpus.py", 1, "one", GROUP_IS_BY="nccl")


def test_torch_operations_on_gpus_of_their_own(checks) -> None:
    if count_of_gpus() < 3:
        pytest.skip("there are fewer than 3 GPUs")
    checks("operations.py", 3, "own", LEFT_OUT=NCCL_HAS_NOT)


def test_torch_streams_memory_and_ddp_on_gpus_of_their_own(checks) -> None:
    if count_of_gpus() < 2:
        pytest.skip("there is one GPU")
    checks("gpus.py", 2, "own", GROUP_IS_BY="nccl")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_training(run, tmp_path: Path, precision: str, parallel: str) -> None:
    results = tmp_path / "results.json"
    line = ("--num_gpus", "1", "--steps", "8", "--batch", "4", "--sequence", "32")
    how = ("--precision", precision, "--parallel", parallel, "--json", str(results))
    run(TRAIN, "--model", "deepseek", *line, *how)
    found = json.loads(results.read_text())
    assert found["ranks"] == 1 and found["steps"] == 8
    assert found["loss_last"] < found["loss_first"]


def test_training_has_the_losses_of_the_cpu(run, tmp_path: Path) -> None:
    losses = []
    for where in (("--num_gpus", "1"), ("--num_gpus", "0", "--nproc", "1")):
        results = tmp_path / f"{len(losses)}.json"
        line = ("--steps", "3", "--batch", "4", "--sequence", "32", "--precision", "float64")
        run(TRAIN, "--model", "deepseek", *where, *line, "--json", str(results))
        losses.append(json.loads(results.read_text())["loss_last"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
