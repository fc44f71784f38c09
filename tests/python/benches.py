# SPDX-License-Identifier: Apache-2.0
"""How tests start ``ciuic bench``, and look at its processes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

BENCH = [
    sys.executable,
    "-c",
    "import typer; from ciuic.bench.command import bench; typer.run(bench)",
]
SHORT = ["--rounds", "2", "--round-ms", "3"]


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_until(condition: Any, what: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about in {timeout_s} s"
        time.sleep(0.02)


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*BENCH, *arguments], capture_output=True, text=True, timeout=200)
