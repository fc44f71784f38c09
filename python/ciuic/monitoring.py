# SPDX-License-Identifier: Apache-2.0
"""A barrier that says who is missing, for groups of torch.distributed."""

from __future__ import annotations

import datetime
from typing import Any


def monitored_barrier(
    group: Any = None,
    timeout: datetime.timedelta | float | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """``torch.distributed.monitored_barrier`` for a group of the backend ``ciuic``.

    That function asks for the name gloo; this one does not. Rank 0 hears from every rank; where one
    does not come, the group ends, with an error on every rank that names it. A rank that is not in
    the group returns at once.

    Args:
        group: A process group of torch's. ``None``: the default group.
        timeout: As a timedelta or in seconds; ``None``: the group's.
        wait_all_ranks: Name all ranks that did not come, not only the first.

    Raises:
        torch.distributed.DistBackendError: Ranks that did not come in time.
    """
    import torch.distributed as distributed  # not before: `import ciuic` does without torch

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
