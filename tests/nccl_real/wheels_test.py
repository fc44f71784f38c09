# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own libnccl and libcudart, as their wheels have them, on a machine without a GPU.

What the drivers declare of them is of these releases; `tests/fakes/` does the rest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "tests/nccl_real/open_wheels"
NCCL = "2.32.3"
WHEELS = [f"nvidia-nccl-cu13=={NCCL}", "nvidia-cuda-runtime==13.5.37"]  # 300 MB


def environment() -> dict[str, str]:
    """Without what would lead to other libraries, or hide the driver."""
    leads = ("LD_LIBRARY_PATH", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES")
    return {
        name: text
        for name, text in os.environ.items()
        if name not in leads and not name.startswith("NCCL_")
    }


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvidia")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder]
    subprocess.run([*command, *WHEELS], check=True)
    return folder


def opened(*libraries: Path) -> dict[str, str]:
    """What the program says of two libraries, by what it tried."""
    program = Path(os.environ.get("CIUIC_BUILD") or ROOT / "build" / "release") / PROGRAM
    done = subprocess.run(
        [program, *libraries],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


def test_opens_what_the_wheels_have(wheels: Path) -> None:
    (libcudart,) = wheels.glob("nvidia/*/lib/libcudart.so.13")
    (libnccl,) = wheels.glob("nvidia/*/lib/libnccl.so.2")
    said = opened(libcudart, libnccl)
    assert said["loaded before"] == "no"
    assert (said["nccl"], said["loaded"], said["path"]) == ("ok", "yes", str(libnccl))
    assert (said["version"], said["split"]) == (NCCL, "yes")
    assert (said["unique id"], said["written"]) == ("ok", "yes")
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("what is said without a driver cannot be seen here")
    assert said["cuda"].startswith(f"unavailable, the CUDA runtime {libcudart} (13.")
    assert "but no driver" in said["cuda"] and "CUDA 13 or later" in said["cuda"]
    assert said["join"].startswith(
        "system, ncclCommInitRankConfig failed: unhandled cuda error (1)"
    )
    assert "insufficient" in said["join"] and "NCCL_DEBUG=INFO" in said["join"]
