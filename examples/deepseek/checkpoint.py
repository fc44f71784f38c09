# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: rank 0 writes and reads them, the others get theirs from it.

A file is complete or absent: it is written beside its place, flushed to the disk, then renamed. So
a run that is killed at any moment leaves its newest checkpoint whole. The other ranks receive the
bytes that rank 0 read; no file system needs to be shared, and a run may be resumed on another
number of ranks.
"""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Any

import torch

from deepseek.communicator import Communicator
from deepseek.options import OptionError

KEPT = 2  # the newest, and one before it in case the disk ruins that
_NAME = re.compile(r"step_(\d{8})\.pt")


def write(folder: Path, step: int, state: dict[str, Any]) -> Path:
    """Write ``state`` as the checkpoint after ``step`` steps; older ones than KEPT go."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step_{step:08d}.pt"
    beside = folder / f".{path.name}.{os.getpid()}"
    try:
        with open(beside, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)  # the new name, too, is to outlast a power cut
    finally:
        os.close(directory)
    for old in _found(folder)[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def check_unused(communicator: Communicator, folder: Path) -> None:
    """Raise OptionError on every rank where rank 0's ``folder`` has checkpoints of another run."""
    used = torch.tensor([communicator.rank == 0 and bool(_found(folder))], dtype=torch.uint8)
    communicator.broadcast(used)
    if used.item():
        raise OptionError(
            f"--checkpoint {folder} has checkpoints already: go on with --resume, "
            "or name another folder"
        )


def read_everywhere(communicator: Communicator, folder: Path) -> dict[str, Any]:
    """Return the newest checkpoint in rank 0's ``folder``, on all ranks.

    Raises OptionError on every rank where there is none.
    """
    found = _found(folder) if communicator.rank == 0 else []
    content = bytearray(found[-1].read_bytes()) if found else bytearray()
    count = torch.tensor([len(content)])
    communicator.broadcast(count)
    if count.item() == 0:
        raise OptionError(f"--resume: there is no checkpoint in {folder}")
    buffer = torch.empty(int(count.item()), dtype=torch.uint8)
    if communicator.rank == 0:
        buffer = torch.frombuffer(content, dtype=torch.uint8)
    communicator.broadcast(buffer)
    content = io.BytesIO(buffer.numpy().tobytes())
    # To the CPU first: the run that wrote it may have had other devices.
    state: dict[str, Any] = torch.load(content, map_location="cpu", weights_only=True)
    return state


def check_settings(state: dict[str, Any], settings: dict[str, Any]) -> None:
    """Raise OptionError where the checkpoint was made with other settings than these."""
    for name, value in settings.items():
        was = state["settings"].get(name)
        if was != value:
            raise OptionError(f"--resume: the checkpoint was made with {name} {was}, not {value}")


def _found(folder: Path) -> list[Path]:
    """Return the checkpoints in ``folder``, the newest last."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
