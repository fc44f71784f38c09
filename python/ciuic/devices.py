# SPDX-License-Identifier: Apache-2.0
"""The device that this rank computes on, and the stream that it works in."""

from __future__ import annotations

import sys
from typing import Any

from ciuic import _native
from ciuic.rendezvous import local_rank


def local_device() -> str:
    """``"cuda:<local rank>"`` where the program has imported torch and there are GPUs, else
    ``"cpu"``.

    It is what ``torch.device`` and ``device=`` take. Ranks beyond the number of GPUs share them in
    turn.
    """
    torch = _torch_with_cuda()
    if torch is None:
        return "cpu"
    return f"cuda:{max(0, local_rank()) % torch.cuda.device_count()}"


def make_current(backend: str) -> int:
    """The number of this rank's GPU, which is the current device from now on; -1 without one.

    That of its local rank, as :func:`local_device` has it, unless the program has chosen another
    than the first itself. A backend that does without does not start CUDA for it.
    """
    torch = _torch_with_cuda()
    if backend not in ("auto", "nccl") and (torch is None or not torch.cuda.is_initialized()):
        return -1
    if torch is None:
        return _native.current_cuda_device()
    if torch.cuda.current_device() == 0 and local_rank() > 0:
        torch.cuda.set_device(local_rank() % torch.cuda.device_count())
    return int(torch.cuda.current_device())


def current_stream(device: int) -> int:
    """The ``cudaStream_t`` in which the caller works on the device; 0 is the legacy default one."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.current_stream(device).cuda_stream)


def _torch_with_cuda() -> Any:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_available():
        return None
    return torch


_native.set_stream_source(current_stream)
