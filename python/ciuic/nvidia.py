# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's libraries from wheels of this environment, for programs without PyTorch."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

_CUDA = ("cu13/lib/libcudart.so.13", "cuda_runtime/lib/libcudart.so.12")  # the newest first
_NCCL = ("nccl/lib/libnccl.so.2",)


def libraries() -> tuple[str, str]:
    """Paths of a CUDA runtime and of NCCL; "" where no wheel has one."""
    spec = importlib.util.find_spec("nvidia")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    return _first(folders, _CUDA), _first(folders, _NCCL)


def _first(folders: Sequence[str], names: Sequence[str]) -> str:
    for name in names:
        for folder in folders:
            path = Path(folder) / name
            if path.exists():
                return str(path)
    return ""
