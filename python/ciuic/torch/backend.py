# SPDX-License-Identifier: Apache-2.0
"""From torch's options of a group to a backend."""

from __future__ import annotations

import atexit
import sys
import threading
from types import FrameType
from typing import Any

import torch
import torch.distributed as distributed

from ciuic import _native, devices
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


def create_backend(options: Any, group_options: Any, name: str = "ciuic") -> Any:
    """What ``register_backend`` calls for every new group: joins it.

    Args:
        options: ``_DistributedBackendOptions``: store, rank, size, time-out, name.
        group_options: What the user gave as ``pg_options``; there are none of this backend.
        name: What torch calls the backend.

    Raises:
        torch.distributed.DistBackendError: With the message of the core.
        ciuic.UnavailableError: The backend's library cannot be had for this torch.
    """
    group = distributed.ProcessGroup(options.store, options.group_rank, options.group_size)
    carrier, device = "auto", -1
    if not takes_cuda(name):
        if _native.config()["backend"] == "auto":
            carrier = "native"
    elif torch.cuda.is_available():
        device = devices.make_current("auto")
    operators().join(
        group.boxed(),
        round(options.timeout.total_seconds() * 1000),
        str(options.group_id),
        list(options.global_ranks_in_group),
        carrier,
        device,
    )
    backend = group._get_backend(torch.device("cpu"))
    if not hasattr(backend, "perform_nocolor_split"):
        # torch asks any backend for it in ranks that are not in a new group, where the default one
        # was given a device_id; NCCL's alone has it, and this one has nothing to do.
        type(backend).perform_nocolor_split = lambda *_: None
    return backend


def takes_cuda(name: str) -> bool:
    """Whether the group that torch is making has backend ``name`` for CUDA tensors, too.

    Where another one has them ("cpu:ciuic,cuda:nccl"), a communicator of NCCL's beside would be a
    waste. torch does not tell a backend, so this looks where torch has it written down.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_new_process_group_helper":
            config = frame.f_locals.get("backend_config")
            if isinstance(config, distributed.distributed_c10d.BackendConfig):
                return bool(config.get_device_backend_map().get("cuda") == name)
        frame = frame.f_back
    return True
