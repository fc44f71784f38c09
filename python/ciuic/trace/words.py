# SPDX-License-Identifier: Apache-2.0
"""Ranks, times and signals in words."""

from __future__ import annotations

import signal
from collections.abc import Iterable


def ranks(numbers: Iterable[int]) -> str:
    """``rank 3``, ``ranks 0 and 2``, ``ranks 0, 1 and 4 to 7``."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    parts = []
    for first, last in runs:
        if last - first >= 3:
            parts.append(f"{first} to {last}")
        else:
            parts += [str(number) for number in range(first, last + 1)]
    if len(parts) == 1:
        return f"rank{'' if runs[0][0] == runs[-1][1] else 's'} {parts[0]}"
    return f"ranks {', '.join(parts[:-1])} and {parts[-1]}"


def seconds(nanoseconds: float) -> str:
    """``12.3 s``, ``4.5 ms``, ``800 us``; never negative."""
    value = max(0.0, nanoseconds) / 1e9
    if value >= 0.9995:
        return f"{value:.1f} s"
    if value >= 0.0009995:
        return f"{value * 1e3:.1f} ms"
    return f"{value * 1e6:.0f} us"


def exit_of(code: int) -> str:
    """How a process with this exit code ended: ``was killed by SIGKILL``."""
    if code > 128:
        try:
            return f"was killed by {signal.Signals(code - 128).name}"
        except ValueError:
            return f"was killed by signal {code - 128}"
    return f"ended with exit code {code}"


def is_or_are(numbers: Iterable[int], one: str, many: str) -> str:
    """The verb that goes with :func:`ranks`."""
    return one if len(set(numbers)) == 1 else many
