# SPDX-License-Identifier: Apache-2.0
"""What tests/gpu runs on a real GPU, on fake ones: so it is known to be right without one."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fake_gpus
import pytest

OPERATIONS = Path(__file__).parents[1] / "gpu" / "programs" / "operations.py"

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("ranks", "backend", "more"),
    [(1, "nccl", {}), (2, "nccl", {}), (2, "native", {"DEVICE": "cuda:0"})],
)
def test_operations(
    ranks: int,
    backend: str,
    more: dict[str, str],
    environment: Callable[..., dict[str, str]],
    fakes: dict[str, str],
) -> None:
    library = fake_gpus.compiled(Path(fakes["CIUIC_CUDA_LIBRARY"]).parents[2])
    command = [sys.executable, "-m", "ciuic", "run", "-n", str(ranks), "--", sys.executable]
    done = subprocess.run(
        [*command, str(OPERATIONS), backend],
        env=environment(**fakes, **more, FAKE_GPU_LIBRARY=str(library)),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("operations are good") == ranks
