# SPDX-License-Identifier: Apache-2.0
"""Tells torch of the backend ``ciuic``, when torch is imported (entry point ``torch.backends``).

It stands beside the package ``ciuic``, not in it, so that ``import torch`` does not import that.
What goes wrong here would break ``import torch``, so nothing may; it is said when the backend is
used.
"""

import os


def register() -> None:
    """Registers a backend whose code is loaded when a process group first asks for it."""
    try:
        import torch.distributed as distributed

        if not distributed.is_available() or "CIUIC" in distributed.Backend._plugins:
            return

        def create(options, group_options):  # type: ignore[no-untyped-def]
            from ciuic.torch import create_backend

            return create_backend(options, group_options)

        devices = ["cpu", "cuda"]
        distributed.Backend.register_backend("ciuic", create, extended_api=True, devices=devices)
        if os.environ.get("CIUIC_REPLACE") == "gloo":
            from ciuic.torch.replacing import replace_gloo

            replace_gloo()
    except Exception as error:
        import warnings

        warnings.warn(f"torch does not take the backend 'ciuic': {error!r}", stacklevel=2)
