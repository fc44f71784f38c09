# SPDX-License-Identifier: Apache-2.0
"""Start the ranks: one command line becomes N processes, unless a launcher made them already."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from typing import NoReturn

from deepseek.options import OptionError, ranks_of

# Names the terminal of the user's line to rank 0, whose own output may be a launcher's pipe.
TERMINAL = "TRAIN_TERMINAL"

# (rank, size) as launchers spell them: torchrun and `ciuic run`, Open MPI, Hydra.
_SPELLINGS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def ranks_of_launcher() -> int | None:
    """Return how many ranks the launcher started, None where this is the user's own line."""
    for rank, size in _SPELLINGS:
        if rank in os.environ and size in os.environ:
            return int(os.environ[size])
    return None


def check_joined(options: argparse.Namespace, ranks: int) -> None:
    """Raise OptionError where the command line asks for other ranks than the launcher made."""
    if options.nproc is not None and options.nproc != ranks:
        raise OptionError(f"--nproc {options.nproc}, but the launcher started {ranks} ranks")
    here = int(os.environ.get("LOCAL_WORLD_SIZE") or ranks)
    if options.num_gpus not in (0, here):
        raise OptionError(
            f"--num_gpus {options.num_gpus}, but the launcher started {here} ranks on this machine"
        )


def launch(options: argparse.Namespace, script: str, argv: list[str]) -> NoReturn:
    """Become the launcher of this machine's ranks, which run ``script`` with ``argv``."""
    if importlib.util.find_spec("ciuic") is None:
        raise OptionError(
            "the package ciuic, which starts the ranks, is not installed in this Python: "
            "`pip install .` in the source's folder, or start them with torchrun"
        )
    command = ["-m", "ciuic", "run", "-n", str(ranks_of(options)), "--"]
    command += [sys.executable, script, *argv]
    if options.comm == "gloo":
        # DDP warns that no parameter went unused in the first step: a later one may.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if sys.stderr.isatty():
        os.environ[TERMINAL] = os.ttyname(sys.stderr.fileno())
    os.execv(sys.executable, [sys.executable, *command])
