# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends a wait, with KeyboardInterrupt, and the group on every rank."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "interrupted.py"
WAYS = re.findall(r'^    "(\w+)": ', PROGRAM.read_text(), re.MULTILINE)

pytestmark = pytest.mark.slow


def state_of(process: subprocess.Popen[str]) -> str:
    """The kernel's letter for its main thread: S sleeps."""
    stat = Path(f"/proc/{process.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0]


def read_until(process: subprocess.Popen[str], text: str) -> None:
    """Fails with all the output where it does not come."""
    assert process.stdout is not None
    before = ""
    for line in process.stdout:
        if text in line:
            return
        before += line
    raise AssertionError(f"the rank ended before {text!r}:\n{before}")


def test_interrupt_ends_the_group(environment, tmp_path: Path) -> None:
    assert len(WAYS) > 4
    command = [sys.executable, str(PROGRAM), str(tmp_path / "store")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    waits, other = (
        subprocess.Popen([*command, rank], env=environment(), text=True, **pipes) for rank in "01"
    )
    try:
        for way in WAYS:
            read_until(waits, f"waiting {way}")
            while state_of(waits) != "S":  # nothing but the call sleeps
                assert waits.poll() is None
                time.sleep(0.01)
            os.kill(waits.pid, signal.SIGINT)
            read_until(waits, f"interrupted {way}")
            read_until(waits, f"ended {way}")
            assert other.stdin is not None
            other.stdin.write("go\n")
            other.stdin.flush()
        for process in (waits, other):
            read_until(process, "all good")
            assert process.wait(60) == 0
    finally:
        for process in (waits, other):
            process.kill()
            process.communicate()
