# SPDX-License-Identifier: Apache-2.0
"""The training on fake GPUs (tests/torch_backend/fake_gpus.py): nothing of it is left on the CPU,
and the losses are those of the CPU.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the training example needs PyTorch")
pytest.importorskip("transformers", reason="the training example needs transformers")

_HERE = Path(__file__).resolve().parent


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_losses_are_those_of_the_cpu(
    environment: Callable[..., dict[str, str]], fakes: dict[str, str]
) -> None:
    sys.path.insert(0, str(_HERE.parent / "torch_backend"))
    import fake_gpus

    library = fake_gpus.compiled(Path(fakes["CIUIC_CUDA_LIBRARY"]).parents[2])
    # Every operator waits for the stream, so a delay would only cost time.
    settings = {"FAKE_GPU_LIBRARY": str(library), "FAKE_CUDA_DELAY_US": "0", "OMP_NUM_THREADS": "1"}
    line = ("--precision", "float64", "--batch", "2", "--sequence", "16")
    command = [sys.executable, "-m", "ciuic", "run", "-n", "2", "--", sys.executable]
    done = subprocess.run(
        [*command, str(_HERE / "on_fake_gpus.py"), *line],
        env=environment(**fakes, **settings),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    found = re.search(r"losses (\[.*\]) .*backend nccl", done.stdout)
    assert found, done.stdout
    on_cpu, on_gpu = json.loads(found[1])
    assert on_gpu == pytest.approx(on_cpu, abs=1e-9)
