# SPDX-License-Identifier: Apache-2.0
"""What holds for all tests in Python."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

# A shell's background job is started with Ctrl-C ignored, which our children would inherit.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


ROOT = Path(__file__).resolve().parents[1]

_NOT_INHERITED = (
    *("RANK", "LOCAL_", "WORLD_SIZE", "MASTER_", "CIUIC_", "OMPI_", "PMI_", "PMIX_", "MPI_LOCAL"),
    *("SLURM_", "JOB_COMPLETION_INDEX", "SKYPILOT_", "TORCH_", "TORCHELASTIC_"),
    "PYTHONUNBUFFERED",  # print() would write a line's end by itself, after another rank's line
)


@pytest.fixture(scope="session")
def environment() -> Callable[..., dict[str, str]]:
    """Makes a process's environment: ours without a launcher's variables, and more."""

    def make(**more: str) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_INHERITED)}
        return {**inherited, **more}

    return make


@pytest.fixture(scope="session")
def fakes() -> dict[str, str]:
    """Settings by which a process takes the fake CUDA runtime and NCCL (tests/fakes) of
    build/release, or CIUIC_BUILD, with four GPUs."""
    folder = Path(os.environ.get("CIUIC_BUILD") or ROOT / "build" / "release") / "tests" / "fakes"
    libraries = {
        "CIUIC_CUDA_LIBRARY": str(folder / "libcudart.so.13"),
        "CIUIC_NCCL_LIBRARY": str(folder / "libnccl.so.2"),
    }
    for library in libraries.values():
        if not Path(library).exists():
            why = f"no {library} (make build)"
            (pytest.fail if os.environ.get("ALL_LAUNCHERS") else pytest.skip)(why)
    return {**libraries, "FAKE_CUDA_DEVICES": "4"}
