#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a DeepSeek-V3 model over Ciuic: one line starts all ranks.

    python train.py --model deepseek --num_gpus 0 --nproc 2
    python train.py --model deepseek --num_gpus 0 --nproc 2 --comm gloo
    python train.py --model deepseek --num_gpus 1 --precision bfloat16

Under a launcher (`ciuic run`, torchrun, mpiexec) it joins the ranks that are there. The model is
small, its text is the Python standard library: nothing is downloaded. README.md beside this file
says more; deepseek/training.py shows what a step is.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from deepseek import launch, options
from deepseek.options import OptionError


def main(argv: list[str]) -> int:
    """Run the command line ``argv`` and return the exit code."""
    chosen = options.parse(argv)
    try:
        options.check(chosen)
        options.check_gpus(chosen)
        ranks = launch.ranks_of_launcher()
        if ranks is None:
            options.check_ranks(chosen, options.ranks_of(chosen))
            launch.launch(chosen, os.path.abspath(__file__), argv)
        launch.check_joined(chosen, ranks)
        options.check_ranks(chosen, ranks)
        run(chosen)
    except OptionError as error:
        print(f"train.py: error: {error}", file=sys.stderr)
        return 2
    return 0


def run(chosen: argparse.Namespace) -> None:
    """Be one rank: join the others, train, validate, report."""
    import torch
    from deepseek import checkpoint, communicator, data, training

    torch.set_num_threads(threads())
    device = communicator.device_of(chosen.num_gpus)
    comm = communicator.join(chosen.comm, chosen.parallel)
    if comm.rank == 0:
        print(comm.describe(), flush=True)
    trainer = training.Trainer(chosen, comm, data.read_corpus(), device)
    if chosen.resume:
        state = checkpoint.read_everywhere(comm, chosen.checkpoint)
        checkpoint.check_settings(state, trainer.settings())
        trainer.load(state)
        del state
        if trainer.step_count >= chosen.steps:
            raise OptionError(
                f"--steps {chosen.steps}: the checkpoint has {trainer.step_count} steps already"
            )
    elif chosen.checkpoint is not None:
        checkpoint.check_unused(comm, chosen.checkpoint)
    trainer.check_alike()
    results = train(chosen, comm, trainer)
    del trainer
    gc.collect()  # DistributedDataParallel holds gloo's threads, which must end before Python does
    comm.close()
    if comm.rank == 0:
        print(
            "loss {loss_first:.4f} -> {loss_last:.4f}  validation {val_loss:.4f}  "
            "{tokens_per_s:,.0f} tokens/s  waiting {comm_share:.1%}".format(**results)
        )
        if chosen.json is not None:
            write_json(chosen.json, results)


def threads() -> int:
    """Return how many threads are this rank's: the CPUs are shared by the ranks of the machine."""
    local_ranks = os.environ.get("LOCAL_WORLD_SIZE") or launch.ranks_of_launcher() or 1
    return max(1, len(os.sched_getaffinity(0)) // int(local_ranks))


def train(chosen: argparse.Namespace, comm: Any, trainer: Any) -> dict[str, Any]:
    """Train until --steps or --seconds are over; return the results as --json writes them."""
    import torch
    from deepseek import checkpoint, communicator
    from deepseek.progress import Progress

    steps = []
    saved = -1
    started_s = time.monotonic()
    tokens = chosen.batch * chosen.sequence
    with Progress(comm.rank, trainer.step_count, chosen.steps, chosen.seconds) as progress:
        while trainer.step_count < chosen.steps:
            elapsed_s = time.monotonic() - started_s
            step = trainer.step(chosen.seconds is not None and elapsed_s >= chosen.seconds)
            steps.append(step)
            progress.update(
                trainer.step_count, step.loss, tokens / step.seconds, step.waited_s / step.seconds
            )
            if chosen.checkpoint_every and trainer.step_count % chosen.checkpoint_every == 0:
                saved = trainer.step_count
                if comm.rank == 0:
                    checkpoint.write(chosen.checkpoint, saved, trainer.state())
            if step.time_is_up:
                break
    if comm.rank == 0 and chosen.checkpoint is not None and saved != trainer.step_count:
        checkpoint.write(chosen.checkpoint, trainer.step_count, trainer.state())

    timed = steps[1:] or steps  # the first step also allocates and connects
    seconds = [sum(step.seconds for step in timed), sum(step.waited_s for step in timed)]
    spent = torch.tensor(seconds, dtype=torch.float64)
    spent_s, waited_s = communicator.all_reduce(comm, spent, "sum").tolist()
    return {
        "loss_first": steps[0].loss,
        "loss_last": steps[-1].loss,
        "val_loss": trainer.validate(),
        "tokens_per_s": tokens * len(timed) * comm.size / spent_s,
        "comm_share": waited_s / spent_s,
        "backend": comm.name,
        "ranks": comm.size,
        "steps": trainer.step_count,
    }


def write_json(path: Path, results: dict[str, Any]) -> None:
    """Write ``results`` to ``path``, which is complete as soon as it is there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(results, indent=2) + "\n")
    os.replace(beside, path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
