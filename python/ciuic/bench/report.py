# SPDX-License-Identifier: Apache-2.0
"""From nanoseconds to rows: medians, bandwidths, JSON, a table."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from ciuic import _native
from ciuic.bench.options import Options, Series

STATISTIC = (
    "per call: mean over the ranks of the time from the end of one call to the end of the next; "
    "median and p99 over the calls of all rounds; cpu: time of all threads of a process, mean over "
    "calls and ranks, median over the rounds"
)


class Report:
    """What was measured."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.skipped: list[dict[str, str]] = []
        self.libraries: dict[str, str] = {}
        self._calls: dict[tuple[Series, int], list[float]] = {}
        self._cpu_ns: dict[tuple[Series, int], list[float]] = {}

    def skip(self, series: Series, reason: str) -> None:
        """This series has no rows."""
        self.skipped.append({"impl": series.impl, "through": series.through, "reason": reason})

    def skip_all(self, impl: str, reason: str) -> None:
        """No series of this implementation has rows."""
        for series in self.options.series():
            if series.impl == impl:
                self.skip(series, reason)

    def name_library(self, impl: str, name: str) -> None:
        """What an implementation stands for here, such as an MPI and its version; "" for none."""
        if name:
            self.libraries[impl] = name

    def add(
        self,
        series: Series,
        count: int,
        nanoseconds: Sequence[Sequence[int]],
        cpu_ns: Sequence[int],
    ) -> None:
        """One round: the durations of the same calls on each rank, and each rank's CPU time."""
        key = (series, count)
        calls = self._calls.setdefault(key, [])
        calls += [sum(call) / len(call) for call in zip(*nanoseconds, strict=True)]
        of_calls = sum(len(of_rank) for of_rank in nanoseconds)
        self._cpu_ns.setdefault(key, []).append(sum(cpu_ns) / of_calls)

    def notes(self) -> list[str]:
        """Why there are rows missing."""
        return [f"{s['impl']} through {s['through']}: {s['reason']}" for s in self.skipped]

    def rows(self) -> list[dict[str, Any]]:
        """By size, then in the order in which the implementations were named."""
        order = self.options.series()
        keys = sorted(self._calls, key=lambda key: (key[1], order.index(key[0])))
        return [self._row(*key) for key in keys]

    def _row(self, series: Series, count: int) -> dict[str, Any]:
        options, calls = self.options, sorted(self._calls[series, count])
        size = count * options.element_bytes
        median_ns = statistics.median(calls)
        algorithm_gb_s = size / median_ns
        return {
            "op": options.operation,
            "reduce_op": options.op,
            "ranks": options.ranks,
            "dtype": options.dtype,
            "bytes": size,
            "impl": series.impl,
            "through": series.through,
            "median_us": round(median_ns / 1e3, 4),
            "p99_us": round(percentile(calls, 99) / 1e3, 4),
            "cpu_us": round(statistics.median(self._cpu_ns[series, count]) / 1e3, 4),
            "rounds": len(self._cpu_ns[series, count]),
            "calls": len(calls),
            "algbw_gb_s": round(algorithm_gb_s, 6),
            "busbw_gb_s": round(algorithm_gb_s * 2 * (options.ranks - 1) / options.ranks, 6),
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "machine": machine(),
            "seed": self.options.seed,
            "statistic": STATISTIC,
            "libraries": self.libraries,
            "skipped": self.skipped,
            "rows": self.rows(),
        }

    def write_json(self, path: str) -> None:
        """To a file; "-" is stdout."""
        text = json.dumps(self.as_json(), indent=1) + "\n"
        if path == "-":
            print(text, end="")
        else:
            Path(path).write_text(text, encoding="utf-8")

    def print_table(self, file: IO[str]) -> None:
        """A row for each size and series, with colours where ``file`` is a terminal."""
        from rich.console import Console
        from rich.table import Table

        options, rows = self.options, self.rows()
        table = Table(
            title=f"{options.operation}, {options.dtype} {options.op}, {options.ranks} ranks, "
            f"seed {options.seed}"
        )
        for name in ("bytes", "implementation", "through"):
            table.add_column(name, justify="right" if name == "bytes" else "left")
        for name in ("median µs", "p99 µs", "CPU µs", "alg GB/s", "bus GB/s"):
            table.add_column(name, justify="right")
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            best = min(other["median_us"] for other in rows if other["bytes"] == row["bytes"])
            table.add_row(
                f"{row['bytes']:,}",
                row["impl"],
                row["through"],
                significant(row["median_us"]),
                significant(row["p99_us"]),
                significant(row["cpu_us"]),
                significant(row["algbw_gb_s"]),
                significant(row["busbw_gb_s"]),
                style="bold" if row["median_us"] == best else None,
                end_section=following is not None and following["bytes"] != row["bytes"],
            )
        console = Console(file=file, width=None if file.isatty() else 100, highlight=False)
        console.print(table)
        for impl, name in self.libraries.items():
            console.print(f"{impl}: {name}", markup=False)
        for note in self.notes():
            console.print(f"left out: {note}", markup=False)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The least value that ``percent`` of all do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def significant(number: float) -> str:
    """Three digits or more: 0.000265, 0.265, 12.3, 1,234."""
    if number < 0.1:
        return f"{number:.3g}"
    return f"{number:.3f}" if number < 10 else f"{number:.1f}" if number < 100 else f"{number:,.0f}"


def machine() -> dict[str, Any]:
    """What figures depend on."""
    model = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "ciuic": _native.version(),
        "load_1min": round(os.getloadavg()[0], 2),
    }
