# SPDX-License-Identifier: Apache-2.0
"""``ciuic run --init``: torch.distributed is ready when ``import ciuic`` has returned."""

from __future__ import annotations

import os


def initialise_torch_if_asked() -> None:
    """Initialises torch.distributed, if ``ciuic run --init`` asks for it and nobody has done it.

    It takes the launcher's environment. Without ``--init`` nothing happens behind a program's back.
    """
    # Taken away, because it is for the rank itself and not for the processes that it starts.
    if os.environ.pop("CIUIC_INIT", None) != "1":
        return
    import atexit

    import torch.distributed as distributed

    if not distributed.is_available() or distributed.is_initialized():
        return
    distributed.init_process_group("gloo")

    def destroy() -> None:
        if distributed.is_initialized():
            distributed.destroy_process_group()

    atexit.register(destroy)
