# SPDX-License-Identifier: Apache-2.0
"""``ciuic run --init``: torch.distributed is ready when ``import ciuic`` has returned."""

from __future__ import annotations

import os


def initialise_torch_if_asked() -> None:
    """Initialises torch.distributed, if ``ciuic run --init`` asks for it and nobody has done it.

    The backend is ``ciuic``. It takes the launcher's environment. Without ``--init`` nothing
    happens behind a program's back.
    """
    # Taken away, because it is for the rank itself and not for the processes that it starts.
    if os.environ.pop("CIUIC_INIT", None) != "1":
        return
    import atexit

    import torch.distributed as distributed

    if not distributed.is_available() or distributed.is_initialized():
        return
    from ciuic_torch_entry import register

    register()  # where torch does not load its extensions by itself
    distributed.init_process_group("ciuic")

    def destroy() -> None:
        if distributed.is_initialized():
            distributed.destroy_process_group()

    atexit.register(destroy)
