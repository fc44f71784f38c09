#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train the same model on the same text twice, over Ciuic and over gloo, and compare.

Ciuic trains for a minute; gloo, under PyTorch's DistributedDataParallel, then does as many steps.
So the losses must be those of one training, and the times can be compared. `make demo` runs this.
Ends with code 1 where a loss did not fall, or the two disagree by more than rounding explains.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_TRAIN = Path(__file__).resolve().parent / "train.py"
# Two runs of hundreds of steps that add in another order drift apart, by a percent or so.
_LARGEST_DRIFT = 0.1


def train(comm: str, ranks: int, limits: list[str]) -> dict[str, Any]:
    """Return the results of a training over ``comm`` within ``limits``."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        command = [sys.executable, str(_TRAIN), "--model", "deepseek", "--comm", comm]
        command += ["--num_gpus", "0", "--nproc", str(ranks), "--json", str(results), *limits]
        print(f"\n== {comm}: train.py {' '.join(command[2 : -len(limits) - 2])}", flush=True)
        done = subprocess.run(command, check=False)
        if done.returncode != 0:
            sys.exit(f"demo: the training over {comm} ended with code {done.returncode}")
        found: dict[str, Any] = json.loads(results.read_text())
        return found


def table(runs: list[dict[str, Any]]) -> str:
    """Return the results side by side, a line a run."""
    head = ("backend", "ranks", "steps", "loss", "validation", "tokens/s", "waiting")
    rows = [
        (
            run["backend"],
            str(run["ranks"]),
            str(run["steps"]),
            f"{run['loss_first']:.3f} -> {run['loss_last']:.3f}",
            f"{run['val_loss']:.3f}",
            f"{run['tokens_per_s']:,.0f}",
            f"{run['comm_share']:.1%}",
        )
        for run in runs
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]
    return "\n".join(lines)


def complaints(runs: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong with the results, nothing if nothing is."""
    found = [
        f"the {name} over {run['backend']} did not fall: {run['loss_first']:.3f} -> {run[key]:.3f}"
        for run in runs
        for name, key in (("loss", "loss_last"), ("validation loss", "val_loss"))
        if not run[key] < run["loss_first"]
    ]
    ours, theirs = runs
    if abs(ours["loss_first"] - theirs["loss_first"]) > 1e-3:
        found.append("the two do not start from the same loss")
    if ours["steps"] == theirs["steps"]:
        drift = abs(ours["val_loss"] - theirs["val_loss"])
        if not drift <= _LARGEST_DRIFT * theirs["val_loss"]:
            found.append(f"the validation losses differ by {drift:.3f} after the same steps")
    return found


def main() -> int:
    """Run the demonstration and return the exit code."""
    parser = argparse.ArgumentParser(description="Train over Ciuic, then over gloo; compare.")
    parser.add_argument("--seconds", type=float, default=60.0, help="of training over Ciuic")
    parser.add_argument("--nproc", type=int, default=2, help="ranks")
    options = parser.parse_args()
    ours = train("ciuic", options.nproc, ["--seconds", f"{options.seconds:g}"])
    # As many steps; the time is a bound for where gloo is much slower.
    limits = ["--steps", str(ours["steps"]), "--seconds", f"{3 * options.seconds:g}"]
    runs = [ours, train("gloo", options.nproc, limits)]
    print("\n" + table(runs))
    print(
        "waiting: share of a step in which a rank does nothing but wait for the others\n"
        f"time a step, gloo / ciuic: {ours['tokens_per_s'] / runs[1]['tokens_per_s']:.2f}"
    )
    found = complaints(runs)
    for complaint in found:
        print(f"demo: {complaint}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
