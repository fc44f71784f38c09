# SPDX-License-Identifier: Apache-2.0
"""interrupted.py STORE RANK: rank 0 waits for rank 1, which does something else, until Ctrl-C.

Once for each way to wait, each in a group of its own. The group then ends on both, and the default
group goes on.
"""

import datetime
import sys

import torch
import torch.distributed as dist

rank = int(sys.argv[2])
store = dist.FileStore(sys.argv[1], 2)
timeout = datetime.timedelta(seconds=100)
dist.init_process_group("ciuic", store=store, rank=rank, world_size=2, timeout=timeout)
x = torch.ones(100_000)


def barrier_after_another(group) -> None:
    dist.all_reduce(x, group=group, async_op=True)
    dist.barrier(group)


WAYS = {
    "blocking": lambda group: dist.all_reduce(x, group=group),
    "strided": lambda group: dist.all_reduce(x[::2], group=group),
    "wait": lambda group: dist.all_reduce(x, group=group, async_op=True).wait(),
    "bare": lambda group: group.allreduce([x]).wait(),
    "recv": lambda group: dist.recv(x, 1, group=group),
    "barrier": barrier_after_another,
    "wait_for_long": lambda group: dist.all_reduce(x, group=group, async_op=True).wait(timeout),
    "monitored_barrier": lambda group: group.monitored_barrier(timeout),
}


def refused(group) -> str:
    try:
        dist.barrier(group)
    except dist.DistBackendError as error:
        return str(error)
    sys.exit("the group goes on")


for way, wait in WAYS.items():
    group = dist.new_group()
    if rank == 0:
        try:
            print("waiting", way, flush=True)
            wait(group)
        except KeyboardInterrupt:
            print("interrupted", way, flush=True)
        else:
            sys.exit(f"{way}: not interrupted")
        print("ended", way, refused(group).splitlines()[0], flush=True)
    else:
        assert sys.stdin.readline() == "go\n"
        error = refused(group)
        assert "interrupted by a signal" in error, error
dist.barrier()
dist.destroy_process_group()
print("all good", flush=True)
