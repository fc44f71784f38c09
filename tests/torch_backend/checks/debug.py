# SPDX-License-Identifier: Apache-2.0
"""The backend inside torch's wrapper for debugging; see conftest.py."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def check_is_wrapped():
    assert dist.get_debug_level() == dist.DebugLevel.DETAIL
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert type(backend).__name__ == "_ProcessGroupWrapper"
    assert backend.wrapped_pg.name() == "ciuic"


def check_operations():
    x = torch.ones(3)
    dist.all_reduce(x)
    dist.all_reduce(x, async_op=True).wait()
    assert x[0] == dist.get_world_size() ** 2
    parts = [torch.zeros(2) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, torch.full((2,), float(dist.get_rank())))
    assert parts[1][0] == 1
    dist.barrier()
    model = DistributedDataParallel(torch.nn.Linear(3, 3))
    model(torch.ones(2, 3)).sum().backward()


def check_different_calls_are_found():
    group = dist.new_group()
    try:
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(2), group=group)
        else:
            dist.all_reduce(torch.ones(3), group=group)
    except RuntimeError as error:
        assert "mismatch" in str(error), error
    else:
        raise AssertionError("the wrapper saw no mismatch")
