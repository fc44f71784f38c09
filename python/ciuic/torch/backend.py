# SPDX-License-Identifier: Apache-2.0
"""From torch's options of a group to a backend, and what torch has no name for."""

from __future__ import annotations

import atexit
import datetime
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


def monitored_barrier(
    group: Any = None,
    timeout: datetime.timedelta | float | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """``torch.distributed.monitored_barrier`` for a group of this backend.

    That function asks for the name gloo; this one does not. Rank 0 hears from every rank; where one
    does not come, the group ends, with an error on every rank that names it. A rank that is not in
    the group returns at once.

    Args:
        group: ``None``: the default group.
        timeout: As a timedelta or in seconds; ``None``: the group's.
        wait_all_ranks: Name all ranks that did not come, not only the first.

    Raises:
        torch.distributed.DistBackendError: Ranks that did not come in time.
    """
    if distributed.distributed_c10d._rank_not_in_group(group):
        return
    if group is None:
        group = distributed.distributed_c10d._get_default_group()
    if timeout is None:
        group.monitored_barrier(wait_all_ranks=wait_all_ranks)
        return
    if not isinstance(timeout, datetime.timedelta):
        timeout = datetime.timedelta(seconds=timeout)
    group.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)
