# SPDX-License-Identifier: Apache-2.0
"""Show how the training goes: a bar on a terminal, else a line now and then. Rank 0 only."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import Any, TextIO

from deepseek.launch import TERMINAL

_LINE_EVERY_S = 10.0


def _terminal() -> TextIO | None:
    """Return the terminal to draw on: that of the user's line, or our own standard error."""
    name = os.environ.get(TERMINAL)
    if name:
        try:
            return open(name, "w")
        except OSError:
            return None  # the user's terminal is gone; train on
    return sys.stderr if sys.stderr.isatty() else None


class Progress:
    """Shows the way to ``steps`` steps, or to ``seconds`` if that is not None. A context manager.

    Silent on every rank but 0. ``done`` steps were done before this run.
    """

    def __init__(self, rank: int, done: int, steps: int, seconds: float | None) -> None:
        self._rank = rank
        self._steps = steps
        self._seconds = seconds
        self._started_s = time.monotonic()
        self._next_line_s = 0.0
        self._terminal = _terminal() if rank == 0 else None
        self._bar: Any = None
        if self._terminal is not None:
            self._bar = _bar(self._terminal)
            start, end = (done, steps) if seconds is None else (0, seconds)
            self._task = self._bar.add_task("", completed=start, total=end, step=done, text="")

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._terminal is not None and self._terminal is not sys.stderr:
            self._terminal.close()

    def update(self, step: int, loss: float, tokens_per_s: float, comm_share: float) -> None:
        """Show that ``step`` steps are done."""
        if self._rank != 0:
            return
        text = f"loss {loss:.4f}  {tokens_per_s:,.0f} tokens/s  waiting {comm_share:.1%}"
        now_s = time.monotonic()
        if self._bar is not None:
            done = step if self._seconds is None else now_s - self._started_s
            self._bar.update(self._task, completed=done, step=step, text=text)
        elif now_s >= self._next_line_s or step == self._steps:
            self._next_line_s = now_s + _LINE_EVERY_S
            of_steps = f"/{self._steps}" if self._seconds is None else ""
            print(f"step {step}{of_steps}  {text}", flush=True)


def _bar(terminal: TextIO) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("step {task.fields[step]}"),
        BarColumn(bar_width=24),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}"),
    )
    # Standard output is left alone: in a rank it may be a pipe that others read. Some terminals
    # do not tell their width.
    width = os.get_terminal_size(terminal.fileno()).columns or 80
    console = Console(file=terminal, force_terminal=True, width=width)
    return RichProgress(*columns, console=console, redirect_stdout=False, redirect_stderr=False)
