# SPDX-License-Identifier: Apache-2.0
"""From torch's options of a group to a backend."""

from __future__ import annotations

import atexit
import threading
from typing import Any

import torch
import torch.distributed as distributed

from ciuic.torch import loading

_lock = threading.Lock()
_loaded: list[Any] = []


def operators() -> Any:
    """The library's operators, ``torch.ops.ciuic``; loads it where it is not there yet."""
    with _lock:
        if not _loaded:
            loading.load()
            _loaded.append(torch.ops.ciuic)
            atexit.register(torch.ops.ciuic.close_all)
        return _loaded[0]


def create_backend(options: Any, group_options: Any) -> Any:
    """What ``register_backend`` calls for every new group: joins it.

    Args:
        options: ``_DistributedBackendOptions``: store, rank, size, time-out, name.
        group_options: What the user gave as ``pg_options``; there are none of this backend.

    Raises:
        torch.distributed.DistBackendError: With the message of the core.
        ciuic.UnavailableError: The backend's library cannot be had for this torch.
    """
    group = distributed.ProcessGroup(options.store, options.group_rank, options.group_size)
    operators().join(
        group.boxed(),
        round(options.timeout.total_seconds() * 1000),
        str(options.group_id),
        list(options.global_ranks_in_group),
    )
    return group._get_backend(torch.device("cpu"))
