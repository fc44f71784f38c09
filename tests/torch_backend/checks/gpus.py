# SPDX-License-Identifier: Apache-2.0
"""What is of CUDA tensors alone: streams, memory, devices; see conftest.py and fake_gpus.py. It
runs on real GPUs, too (tests/gpu), there also by one rank.
"""

import copy
import ctypes
import datetime
import os
import time

import ciuic.torch
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

FAKE = ctypes.CDLL(os.environ["CIUIC_CUDA_LIBRARY"]) if "FAKE_GPUS" in os.environ else None
IS_BY_NCCL = os.environ["GROUP_IS_BY"] == "nccl"
NOT_READY = 600
COUNT = 70_000
CYCLES = 2_000_000  # of a real GPU, in a millisecond or so


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


def device() -> torch.device:
    return torch.empty(0).device


def busy(milliseconds):
    """A kernel on the default stream that lasts so long, and writes to nobody's memory."""
    if FAKE is None:
        torch.cuda._sleep(CYCLES * milliseconds)
        return
    busy.target = torch.empty(1, dtype=torch.uint8)
    pointer, delay = ctypes.c_void_p(busy.target.data_ptr()), ctypes.c_int64(1000 * milliseconds)
    assert FAKE.ciuic_fake_fill(None, pointer, ctypes.c_size_t(1), 0, delay) == 0


def is_idle() -> bool:
    if FAKE is None:
        return torch.cuda.current_stream().query()
    return FAKE.cudaStreamQuery(None) != NOT_READY


def of_rank(number, count=COUNT):
    return torch.full((count,), float(number + 1))


def total(count=COUNT):
    return torch.full((count,), float(sum(range(1, size() + 1))), device="cpu")


def same(got, wanted):
    assert torch.equal(got.cpu(), wanted.cpu()), (got.cpu(), wanted.cpu())


def raises(text, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except (RuntimeError, ValueError) as error:
        assert text in str(error), f"{text!r} is not in {error}"
        return
    raise AssertionError(f"{call} raised nothing")


def check_devices_of_the_group():
    assert device().type == "cuda"
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    assert backend.name() == "ciuic"
    assert backend.supports_coalescing == IS_BY_NCCL
    assert dist.get_backend_config() == "cpu:ciuic,cuda:ciuic"
    on_cpu = torch.ones(3, device="cpu")
    dist.all_reduce(on_cpu)
    assert on_cpu[0] == size()


def check_inputs_are_waited_for():
    """A kernel that was put into the stream before the call has written its output."""
    for is_async in (False, True):
        busy(50)
        x = of_rank(rank())
        work = dist.all_reduce(x, async_op=is_async)
        if work is not None:
            work.wait()
        y = x * 2
        same(x, total())
        same(y, 2 * total())


def check_the_host_does_not_wait_for_the_device():
    x, y, z = (of_rank(rank()) for _ in range(3))
    dist.barrier()
    if not IS_BY_NCCL:
        return
    busy(1000)
    work = dist.all_reduce(x, async_op=True)
    assert not work.is_completed()
    work.wait()
    dist.all_reduce(y)
    future = dist.all_reduce(z, async_op=True).get_future()
    assert future.done()  # callbacks, and who waits, are ordered by their streams
    assert not is_idle()
    assert not work.is_completed()
    same(future.then(lambda f: f.value()[0] * 2).wait(), 2 * total())
    same(x, total())
    same(y, total())
    assert work.is_completed()


def check_other_streams():
    side = torch.Stream(device=device())
    x = torch.zeros(COUNT)
    done = torch.Event(device=device())
    done.record()
    with side:
        side.wait_event(done)
        x.copy_(of_rank(rank()))
        work = dist.all_reduce(x, async_op=True)
        strided = torch.zeros(COUNT, 2)
        gathered = list(torch.zeros(size(), COUNT, 2).select(2, 0).unbind(0))
        all_of_them = dist.all_gather(gathered, of_rank(rank()), async_op=True)
        strided[:, 0] = of_rank(rank())
        of_strided = dist.all_reduce(strided[:, 0], async_op=True)
    # Each stream that waits finds the result, also what is copied back, and that twice.
    for stream in (torch.Stream(device=device()), None):
        if stream is not None:
            stream.__enter__()
        for each in (work, of_strided, all_of_them):
            each.wait()
        same(x + 0, total())
        same(strided[:, 0] + 0, total())
        for r, part in enumerate(gathered):
            same(part + 0, of_rank(r))
        if stream is not None:
            stream.__exit__(None, None, None)


def check_polling():
    """Once it is completed, everything is there, in any stream: also what is copied back."""
    x = torch.zeros(COUNT, 2)
    x[:, 1] = of_rank(rank())
    work = dist.all_reduce(x[:, 1], async_op=True)
    deadline = time.monotonic() + 30
    while not work.is_completed():
        assert time.monotonic() < deadline
    with torch.Stream(device=device()):
        same(x[:, 1] + 0, total())
    assert work.is_success()
    work.wait()


def check_memory_that_is_dropped_early():
    for is_async in (True, False):
        outputs = [torch.zeros(COUNT) for _ in range(size())]
        works = []
        for _ in range(10):
            busy(1)
            works.append(dist.all_gather(outputs, of_rank(rank()), async_op=is_async))
            torch.ones(COUNT)
        for work in works:
            if work is not None:
                work.wait()
        del works
        for r, output in enumerate(outputs):
            same(output, of_rank(r))
    out = torch.zeros(size() * COUNT)
    dist.all_gather_into_tensor(out, of_rank(rank()), async_op=True)  # nobody waits
    dist.barrier()
    same(out, torch.cat([of_rank(r) for r in range(size())]))


def check_barrier_waits_for_what_was_called_before():
    x = torch.zeros(COUNT, 2)
    for is_async in (True, False):
        x[:, 0] = of_rank(rank())
        busy(50)
        dist.all_reduce(x[:, 0], async_op=is_async)
        dist.barrier()
        same(x[:, 0], total())


def check_messages():
    peer, source = (rank() + 1) % size(), (rank() - 1) % size()
    for count in (0, 1, 300_000):
        got = torch.zeros(count)
        busy(5)
        operations = [
            dist.P2POp(dist.isend, torch.full((count,), float(rank())), peer),
            dist.P2POp(dist.irecv, got, source),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        same(got, torch.full((count,), float(source)))
    if size() == 1:
        return
    if rank() == 0:
        dist.send(torch.full((5,), 7.0), 1)
    if rank() == 1:
        got = torch.zeros(5, 2)
        dist.recv(got[:, 1], 0)
        same(got[:, 1], torch.full((5,), 7.0))


def check_mixed_devices():
    on_cpu, on_gpu = torch.ones(2, device="cpu"), torch.ones(2)
    whole = torch.ones(2 * size(), device="cpu")
    if size() > 1:
        mixed = [on_cpu, on_gpu, on_gpu, on_gpu][: size()]
        raises("on cpu and on cuda", dist.all_to_all, mixed, mixed)
    raises("must be on one device", dist.all_gather_into_tensor, whole, on_gpu)
    elsewhere = torch.empty(3, device="meta")
    raises("on meta", dist.group.WORLD._get_backend(device()).allreduce, [elsewhere])
    dist.barrier()


def check_other_groups():
    for ranks in ([0], [*range(size())][::-1]):
        group = dist.new_group(ranks)
        if rank() in ranks:
            x = of_rank(rank())
            dist.all_reduce(x, group=group)
            same(x, sum(of_rank(r) for r in ranks))
    group = dist.new_group(backend="cpu:gloo,cuda:ciuic")
    x = of_rank(rank())
    dist.all_reduce(x, group=group)
    same(x, total())
    dist.barrier(group)
    assert group._get_backend(torch.device("cpu")).name() == "gloo"
    group = dist.new_group(backend="cpu:ciuic,cuda:gloo")
    assert not group._get_backend(torch.device("cpu")).supports_coalescing  # it has no NCCL
    x = torch.ones(2, device="cpu")
    dist.all_reduce(x, group=group)
    assert x[0] == size()
    mesh = init_device_mesh("cuda", (size(),), backend_override={0: "ciuic"})
    x = of_rank(rank())
    dist.all_reduce(x, group=mesh.get_group())
    same(x, total())
    ciuic.torch.monitored_barrier()


def check_ddp_step_is_that_of_the_cpu():
    """A model on the GPU and its copy on the CPU, trained alike, have the same weights."""
    torch.manual_seed(1)
    with torch.device("cpu"):
        on_cpu = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Linear(16, 4))
    models = [
        DistributedDataParallel(model, bucket_cap_mb=0.0005, gradient_as_bucket_view=True)
        for model in (copy.deepcopy(on_cpu).to(device()), on_cpu)
    ]
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            generator = torch.Generator("cpu").manual_seed(100 * step + rank())
            inputs = torch.randn(6, 8, generator=generator, device="cpu")
            optimizer.zero_grad()
            model(inputs.to(next(model.parameters()).device)).square().mean().backward()
            optimizer.step()
    for got, wanted in zip(*(model.parameters() for model in models), strict=True):
        assert got.is_cuda and torch.allclose(got.cpu(), wanted, atol=1e-6)


def check_a_rank_that_does_not_come():
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    dist.barrier()
    if rank() != 0 or size() == 1:
        return
    x = of_rank(rank())
    work = dist.all_reduce(x, group=group, async_op=True)
    if not IS_BY_NCCL:  # the host waits for the others, as long as it was told
        raises("Operation timed out", work.wait, datetime.timedelta(seconds=0.1))
        raises(" Timed out waiting 2000ms: ", work.wait)
        assert " Timed out waiting" in str(work.exception())
    else:
        work.wait()  # the stream waits; later calls tell
        assert not work.is_completed()
        raises(" Timed out waiting 2000ms: ", dist.barrier, group)
