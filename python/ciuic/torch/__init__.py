# SPDX-License-Identifier: Apache-2.0
"""The PyTorch backend: ``torch.distributed.init_process_group("ciuic")``.

torch finds it by itself, through an entry point; ``import ciuic.torch`` does the same where that is
switched off (``TORCH_DEVICE_BACKEND_AUTOLOAD=0``). What carries the operations out is C++, in
``python/torch_backend``; here it is found, or built, and loaded.
"""

from __future__ import annotations

from ciuic_torch_entry import register

from ciuic.monitoring import monitored_barrier
from ciuic.torch.backend import create_backend

register()

__all__ = ["create_backend", "monitored_barrier"]
