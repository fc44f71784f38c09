# SPDX-License-Identifier: Apache-2.0
"""What is shown: a bar on the terminal of the user's line, lines where there is none."""

from __future__ import annotations

import contextlib
import os
import pty
import tty

import pytest
from deepseek.launch import TERMINAL
from deepseek.progress import Progress


def all_of(screen: int) -> str:
    """Return what was written to the terminal whose other end is ``screen``, which it closes."""
    drawn = b""
    with contextlib.suppress(OSError):  # EIO: all is read, and nobody holds the terminal
        while part := os.read(screen, 4096):
            drawn += part
    os.close(screen)
    return drawn.decode()


def test_rank_0_draws_on_the_terminal_that_the_launcher_names(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    screen, terminal = pty.openpty()
    tty.setraw(terminal)
    monkeypatch.setenv(TERMINAL, os.ttyname(terminal))
    with Progress(0, 3, 10, None) as progress:
        progress.update(4, 5.25, 12345.0, 0.125)
    os.close(terminal)
    drawn = all_of(screen)
    assert "step 4" in drawn
    assert "loss 5.2500  12,345 tokens/s  waiting 12.5%" in drawn
    assert capfd.readouterr() == ("", "")


def test_without_a_terminal_the_first_and_the_last_step_are_lines(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(TERMINAL, raising=False)
    with Progress(0, 0, 100, None) as progress:
        for step in range(1, 101):
            progress.update(step, 5.0, 1000.0, 0.0)
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("step 1/100  loss 5.0000")
    assert lines[-1].startswith("step 100/100")
    assert len(lines) < 100


def test_a_terminal_that_is_gone_and_other_ranks_are_silent(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(TERMINAL, "/dev/pts/none")
    for rank in (0, 1):
        with Progress(rank, 0, 2, None) as progress:
            progress.update(1, 5.0, 1000.0, 0.0)
        assert len(capfd.readouterr().out.splitlines()) == (1 if rank == 0 else 0)
