# SPDX-License-Identifier: Apache-2.0
"""The device that this rank computes on."""

from __future__ import annotations

import sys

from ciuic.rendezvous import local_rank


def local_device() -> str:
    """``"cuda:<local rank>"`` where the program has imported torch and there are GPUs, else
    ``"cpu"``.

    It is what ``torch.device`` and ``device=`` take. Ranks beyond the number of GPUs share them in
    turn. (No backend takes CUDA tensors yet: ``all_reduce`` refuses them with a clear error.)
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return "cpu"
    return f"cuda:{max(0, local_rank()) % torch.cuda.device_count()}"
