# SPDX-License-Identifier: Apache-2.0
"""The command line of train.py, and every check on it that needs neither torch nor peers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

DEFAULT_STEPS = 200
PARALLEL = ("ddp", "fsdp", "tensor", "pipeline")
PRECISIONS = ("float32", "bfloat16", "float64")


class OptionError(ValueError):
    """The command line asks for what cannot be done; the message says what to change."""


def parse(argv: list[str]) -> argparse.Namespace:
    """Return the options in ``argv``; ends the program, as argparse does, on an unknown one."""
    parser = argparse.ArgumentParser(
        prog="train.py",
        description="Train a small DeepSeek-V3 from scratch on the Python standard library's text.",
    )
    add = parser.add_argument
    add("--model", choices=["deepseek"], default="deepseek")
    add("--num_gpus", type=int, default=0, help="GPUs of a machine, a rank each; 0: on the CPU")
    add("--nproc", type=int, help="ranks on the CPU of this machine (default 2)")
    add("--comm", choices=["ciuic", "gloo"], default="ciuic", help="who carries the gradients")
    add(
        "--parallel",
        choices=PARALLEL,
        default="ddp",
        help="what the ranks share: only the data, or the model",
    )
    add("--precision", choices=PRECISIONS, default="float32", help="of the model's arithmetic")
    add("--steps", type=int, help="in all, those before a resume counted (200 without --seconds)")
    add("--seconds", type=float, help="stop after this time, or after --steps if that is sooner")
    add("--batch", type=int, default=16, help="sequences a step, over all ranks together")
    add("--sequence", type=int, default=128, help="bytes of text a sequence")
    add("--lr", type=float, default=3e-3)
    add("--optimizer", choices=["adamw", "sgd"], default="adamw")
    add("--seed", type=int, default=0, help="of the weights and of the order of the data")
    add("--bucket_kib", type=int, default=1024, help="gradients that travel together, in KiB")
    add("--checkpoint", type=Path, metavar="DIR", help="rank 0 writes checkpoints here")
    add("--checkpoint_every", type=int, default=0, metavar="N", help="steps; 0: at the end only")
    add("--resume", action="store_true", help="go on from the newest checkpoint in DIR")
    add("--json", type=Path, metavar="FILE", help="write the results here")
    options = parser.parse_args(argv)
    if options.steps is None:
        options.steps = DEFAULT_STEPS if options.seconds is None else sys.maxsize
    return options


def check(options: argparse.Namespace) -> None:
    """Raise OptionError for values that no number of ranks makes right."""
    for name in ("steps", "batch", "sequence", "bucket_kib"):
        if getattr(options, name) < 1:
            raise OptionError(f"--{name} {getattr(options, name)}: must be at least 1")
    for name in ("num_gpus", "checkpoint_every", "seed"):
        if getattr(options, name) < 0:
            raise OptionError(f"--{name} {getattr(options, name)}: must not be negative")
    if options.seed >= 2**31:
        raise OptionError(f"--seed {options.seed}: must be less than 2 to the 31st")
    if options.nproc is not None and options.nproc < 1:
        raise OptionError(f"--nproc {options.nproc}: must be at least 1")
    if options.num_gpus > 0 and options.nproc is not None:
        raise OptionError("--nproc counts ranks on the CPU, --num_gpus those on GPUs: give one")
    if options.seconds is not None and not options.seconds > 0:
        raise OptionError(f"--seconds {options.seconds:g}: must be more than 0")
    if not options.lr > 0:
        raise OptionError(f"--lr {options.lr:g}: must be more than 0")
    if options.parallel != "ddp" and options.checkpoint is not None:
        raise OptionError(
            f"--parallel {options.parallel}: the weights are cut, and --checkpoint "
            "writes whole ones; use --parallel ddp"
        )
    if options.checkpoint is None and (options.resume or options.checkpoint_every):
        raise OptionError("--resume and --checkpoint_every need --checkpoint DIR")


def ranks_of(options: argparse.Namespace) -> int:
    """Return how many ranks are started on this machine where no launcher did."""
    return options.num_gpus or options.nproc or 2


def check_ranks(options: argparse.Namespace, ranks: int) -> None:
    """Raise OptionError where ``ranks`` cannot share the global batch evenly."""
    if options.parallel in ("ddp", "fsdp") and options.batch % ranks:
        nearest = max(ranks, options.batch // ranks * ranks)
        raise OptionError(
            f"--batch {options.batch} cannot be shared evenly by {ranks} ranks: try {nearest}"
        )


def check_gpus(options: argparse.Namespace) -> None:
    """Raise OptionError where GPUs are asked for that cannot be trained on."""
    if options.num_gpus == 0:
        return
    import torch  # seconds to import, and needed for this question alone

    found = torch.cuda.device_count()
    if found < options.num_gpus:
        raise OptionError(
            f"--num_gpus {options.num_gpus}: this machine has {found} GPUs that PyTorch "
            f"{torch.__version__} can use; train on the CPU with --num_gpus 0 --nproc "
            f"{min(options.num_gpus, 2)}"
        )
