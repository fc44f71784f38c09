# SPDX-License-Identifier: Apache-2.0
"""Real text that every machine has: the sources of the Python standard library, byte by byte.

About one file in twenty is held out for validation, chosen by a hash of its name. The sequences of
step k are a function of the seed and k alone, whatever the number of ranks: that makes a resumed
run, or one on other ranks, see exactly what the first would have seen.
"""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch

from deepseek.options import OptionError

# Packages that are installed beside the library, and its tests, which some systems leave out.
_SKIPPED_FOLDERS = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests"})
_HELD_OUT_OF_256 = 13


@dataclass(frozen=True)
class Corpus:
    """Text for training and for validation, uint8 ``[bytes]`` each; ``digest`` names both."""

    train: torch.Tensor
    held_out: torch.Tensor
    digest: bytes


def read_corpus(folder: Path | None = None) -> Corpus:
    """Return the text of all ``*.py`` under ``folder``: the standard library, if not given."""
    folder = folder or Path(sysconfig.get_path("stdlib"))
    names = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if _SKIPPED_FOLDERS.isdisjoint(path.relative_to(folder).parts)
    )
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    for name in names:
        text = (folder / name).read_bytes()
        held_out = hashlib.sha256(name.encode()).digest()[0] < _HELD_OUT_OF_256
        parts[held_out].append(text)
    train, validation = (b"".join(part) for part in parts)
    digest = hashlib.sha256(train)
    digest.update(len(train).to_bytes(8, "little") + validation)
    return Corpus(_bytes_tensor(train), _bytes_tensor(validation), digest.digest())


def check_length(corpus: Corpus, sequence: int) -> None:
    """Raise OptionError where the text is too short for sequences this long."""
    shortest = min(corpus.train.numel(), corpus.held_out.numel())
    if shortest <= sequence:
        raise OptionError(f"--sequence {sequence} is more than the {shortest} bytes of text here")


def batch_of(
    corpus: Corpus, step: int, seed: int, batch: int, sequence: int, share: slice
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets, int64 ``[sequences, sequence]``: this rank's share of a step.

    ``share`` are the places in the global batch of ``batch`` sequences. Targets are the inputs
    moved on by one byte.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    starts = torch.randint(corpus.train.numel() - sequence, (batch,), generator=generator)
    return _windows(corpus.train, starts[share], sequence)


def held_out_of(
    corpus: Corpus, sequence: int, count: int, share: slice
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this rank's share of ``count`` sequences spread evenly over the held-out text."""
    last = corpus.held_out.numel() - sequence - 1
    starts = torch.arange(count) * last // max(count - 1, 1)
    return _windows(corpus.held_out, starts[share], sequence)


def _windows(
    text: torch.Tensor, starts: torch.Tensor, sequence: int
) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = text[starts[:, None] + torch.arange(sequence + 1)].long()
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def _bytes_tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8)
