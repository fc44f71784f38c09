# SPDX-License-Identifier: Apache-2.0
"""Groups: their making, their barriers, their end, and their errors; see conftest.py."""

import datetime
import functools
import os
import re
import time

import ciuic.torch
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

CPU = torch.device("cpu")


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


def sum_over(group) -> float:
    x = torch.full((3,), float(rank()))
    dist.all_reduce(x, group=group)
    assert x[0] == x[2]
    return x[0].item()


def seconds(number):
    return datetime.timedelta(seconds=number)


def raises(kind, pattern, call, *arguments, **named) -> str:
    try:
        call(*arguments, **named)
    except kind as error:
        assert re.search(pattern, str(error)), f"{pattern!r} is not in {error}"
        return str(error)
    raise AssertionError(f"{call} raised nothing")


def together() -> None:
    """All ranks are here, by the store: also where groups have ended."""
    store = dist.distributed_c10d._get_default_store()
    together.count += 1
    store.set(f"together/{together.count}/{rank()}", "")
    for peer in range(size()):
        store.get(f"together/{together.count}/{peer}")


together.count = 0


def check_groups_of_some_ranks():
    odd, even = dist.new_group([1, 3]), dist.new_group([0, 2])
    mine = odd if rank() % 2 else even
    assert sum_over(mine) == (4 if rank() % 2 else 2)
    assert dist.get_backend(mine) == "ciuic"
    # Opposite orders on different ranks, asynchronous: groups are not in each other's way.
    left, right = dist.new_group(), dist.new_group()
    order = (left, right) if rank() % 2 else (right, left)
    works = [dist.all_reduce(torch.ones(50_000), group=g, async_op=True) for g in order]
    for work in works:
        work.wait()
    for group in (left, odd, right, even) if rank() % 2 else (even, right, odd, left):
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)
    assert sum_over(None) == 6


def check_split_groups():
    backend = dist.group.WORLD._get_backend(CPU)
    assert backend.supports_splitting
    ranks = [0, 3] if rank() in (0, 3) else [1, 2]
    group = dist.group.WORLD.split_group(ranks, timeout=seconds(30), opts=None, group_desc="half")
    x = torch.full((2,), float(rank()))
    group.allreduce([x]).wait()
    assert x[0] == 3
    assert group.size() == 2
    group.shutdown()


def check_device_mesh():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("row", "column"))
    assert sum_over(mesh.get_group("row")) == (2 if rank() % 2 == 0 else 4)
    assert sum_over(mesh.get_group("column")) == (1 if rank() < 2 else 5)
    assert dist.get_backend(mesh.get_group("row")) == "ciuic"


def check_groups_of_one_rank():
    groups = [dist.new_group([r]) for r in range(size())]
    x = torch.full((2,), 5.0)
    dist.all_reduce(x, group=groups[rank()])
    parts = [torch.zeros(2)]
    dist.all_gather(parts, x, group=groups[rank()])
    assert parts[0][0] == 5
    dist.barrier(groups[rank()])
    dist.destroy_process_group(groups[rank()])


def check_many_groups_leave_nothing():
    def held():
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def make(count):
        for _ in range(count):
            group = dist.new_group()
            dist.barrier(group)
            dist.destroy_process_group(group)

    make(3)
    together()
    before = held()
    make(20)
    together()
    after = held()
    assert after[0] <= before[0] + 3 and after[1] <= before[1] + 1, (before, after)


def check_devices_of_their_own():
    group = dist.new_group(backend="cpu:ciuic")
    assert sum_over(group) == 6
    dist.destroy_process_group(group)
    # A GPU is wanted by nccl only when a tensor is there; without CUDA torch has no nccl at all.
    if dist.is_nccl_available():
        group = dist.new_group(backend="cpu:ciuic,cuda:nccl")
    else:
        group = dist.new_group(backend="cpu:ciuic,cuda:gloo")
    assert sum_over(group) == 6
    assert group._get_backend(CPU).name() == "ciuic"
    dist.destroy_process_group(group)
    elsewhere = torch.empty(3, device="meta")
    backend = dist.group.WORLD._get_backend(CPU)
    wanted = "the tensor is on meta, and this backend carries tensors on the CPU and on CUDA's GPUs"
    raises(RuntimeError, wanted, backend.allreduce, [elsewhere])
    raises(RuntimeError, wanted, backend.send, [elsewhere], 0, 0)


def check_time_out_of_call_and_group():
    group = dist.new_group(timeout=seconds(60))
    if rank() == 0:
        begin = time.monotonic()
        text = raises(
            dist.DistBackendError,
            r" Timed out waiting 300ms: barrier .* did not end within 300 ms: .*rank",
            dist.barrier,
            group,
            timeout=seconds(0.3),
        )
        assert 0.3 <= time.monotonic() - begin < 20, text
    together()
    # The others hear of it at their next call.
    raises(dist.DistBackendError, "barrier", dist.all_reduce, torch.ones(1), group=group)
    assert sum_over(None) == 6
    group = dist.new_group(timeout=seconds(0.5))
    if rank() == 1:
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        raises(dist.DistBackendError, " Timed out waiting 500ms: all_reduce", work.wait)
        raises(dist.DistBackendError, "Timed out", work.get_future().wait)
    together()


def check_set_timeout():
    group = dist.new_group(timeout=seconds(60))
    group.set_timeout(seconds(0.2))
    if rank() == 2:
        raises(dist.DistBackendError, "Timed out waiting 200ms", dist.barrier, group)
    together()


def check_a_look_at_a_work_that_goes_on():
    x = torch.ones(2)
    if rank() == 0:
        work = dist.all_reduce(x, async_op=True)
        raises(RuntimeError, "timed out", work.wait, seconds(0.05))
        assert not work.is_completed()
    together()
    if rank() == 0:
        work.wait()
    else:
        dist.all_reduce(x)
    assert x[0] == size()


def check_calls_that_differ():
    group = dist.new_group()
    x = torch.ones(2 + rank() % 2)
    text = raises(dist.DistBackendError, "count|elements|2", dist.all_reduce, x, group=group)
    assert "ciuic: " in text
    assert sum_over(None) == 6


def check_abort():
    group = dist.new_group()
    if rank() == 3:
        group._get_backend(CPU).abort()
    raises(dist.DistBackendError, "abort|closed", dist.all_reduce, torch.ones(1), group=group)
    raises(dist.DistBackendError, "abort|closed", dist.all_reduce, torch.ones(1), group=group)


def check_barrier_waits_for_what_was_started_before():
    def sparse():
        place, ones = torch.tensor([[rank()]]), torch.ones(1, 300_000)
        return torch.sparse_coo_tensor(place, ones, (size(), 300_000))

    for barrier in (dist.barrier, lambda: dist.barrier(async_op=True).wait()):
        x, y, z = torch.ones(2_000_000), torch.ones(600_000)[::2], sparse()
        for tensor in (x, y, z):
            dist.all_reduce(tensor, async_op=True)  # the Work is dropped
        barrier()
        ends = [x[-1], y[-1]]
        assert ends == [size(), size()], ends
        assert z._nnz() == size()
        dist.all_reduce(x, async_op=True).wait()
        assert (x == size() ** 2).all()


def check_barrier_does_not_wait_for_messages():
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    got = torch.zeros(2)
    work = dist.irecv(got, left)
    dist.barrier()
    assert not work.is_completed()
    dist.barrier(async_op=True).wait()
    dist.send(torch.full((2,), float(rank())), right)
    work.wait()
    assert (got == left).all()


def check_monitored_barrier():
    ciuic.monitored_barrier()
    ciuic.torch.monitored_barrier(timeout=seconds(30), wait_all_ranks=True)
    for _ in range(20):
        ciuic.torch.monitored_barrier(timeout=30)
    group = dist.new_group()
    some = dist.new_group([0, 1])
    ciuic.torch.monitored_barrier(some)
    if rank() == 0:
        names = r"\[Rank 0\]: Ranks 1, 3 failed to pass monitoredBarrier in 500 ms"
        raises(
            dist.DistBackendError, names, ciuic.torch.monitored_barrier, group, seconds(0.5), True
        )
    elif rank() == 2:
        reached = r"Rank 2 successfully reached monitoredBarrier, .*Ranks 1, 3 failed"
        raises(dist.DistBackendError, reached, ciuic.torch.monitored_barrier, group, seconds(0.5))
    together()


def check_shrink():
    group = dist.new_group()
    backend = group._get_backend(CPU)
    assert backend.supports_shrinking
    if rank() != 1:
        smaller = dist.shrink_group([1], group)
        assert smaller.size() == 3
        x = torch.full((1,), float(rank()))
        dist.all_reduce(x, group=smaller)
        assert x.item() == 5
        dist.destroy_process_group(smaller)
    together()


def check_merge():
    store = dist.PrefixStore("merged", dist.distributed_c10d._get_default_store())
    group = dist.group.WORLD.merge_remote_group(store, size(), seconds(30), "merged")
    x = torch.full((2,), float(rank()))
    group.allreduce([x]).wait()
    assert x[0] == 6
    group.shutdown()


def check_shared_tensors():
    backend = dist.group.WORLD._get_backend(CPU)
    assert backend.supports_tensor_alloc(CPU)
    before = backend.memory_stats()["tensors"]
    x = backend.allocate_tensor(300_000, dtype=torch.float32, device=CPU)
    assert x.shape == (300_000,) and x.dtype == torch.float32
    assert backend.memory_stats()["tensors"] >= before + 1_200_000
    x.fill_(rank())
    dist.all_reduce(x)
    assert (x == 6).all()
    y = x[100_000:]
    del x
    group = dist.new_group()  # other groups use it, too
    dist.all_reduce(y, group=group)
    assert (y == 24).all()
    dist.destroy_process_group(group)
    del y
    held = backend.memory_stats()["tensors"]
    for _ in range(20):  # what was given back is taken again
        backend.allocate_tensor(300_000, dtype=torch.float32, device=CPU).zero_()
    assert backend.memory_stats()["tensors"] == held
    assert backend.allocate_tensor(0, dtype=torch.bool, device=CPU).shape == (0,)
    for count, dtype, device in (
        (-1, torch.int8, CPU),
        (2**62, torch.float32, CPU),
        (3, torch.qint8, CPU),
        (3, torch.int8, torch.device("meta")),
    ):
        with_them = functools.partial(backend.allocate_tensor, dtype=dtype, device=device)
        raises(RuntimeError, "^ciuic: allocate_tensor: ", with_them, count)
    too_large = functools.partial(backend.allocate_tensor, dtype=torch.uint8, device=CPU)
    raises(dist.DistBackendError, r"no memory for \d{16} bytes", too_large, 2**50)


def check_destroy_while_others_wait():
    group = dist.new_group()
    if rank() == 0:
        dist.destroy_process_group(group)
    else:
        raises(dist.DistBackendError, "rank 0", dist.all_reduce, torch.ones(1), group=group)
        dist.destroy_process_group(group)


def check_results_outlive_a_group():
    group = dist.new_group()
    x = torch.ones(3)
    work = dist.all_reduce(x, group=group, async_op=True)
    future = work.get_future()
    work.wait()
    if rank() == 0:
        dist.send(torch.full((2,), 7.0), 1, group=group)  # a peer takes it after our end
    dist.destroy_process_group(group) if rank() != 1 else None
    together()
    if rank() == 1:
        got = torch.zeros(2)
        dist.recv(got, 0, group=group)
        assert got[0] == 7
        dist.destroy_process_group(group)
    assert future.value()[0][0] == size()
    del work, future
