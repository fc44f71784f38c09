# SPDX-License-Identifier: Apache-2.0
"""What is of arrays on GPUs alone. Run by two ranks, on the fakes of tests/fakes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ciuic
import cuda_arrays
import numpy
import on_device
from ciuic import CiuicContext
from cuda_arrays import CudaArray


@contextmanager
def refused(kind: type[Exception], *words: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in: {error}"
    else:
        raise AssertionError(f"no {kind.__name__}")


def dlpack(ctx: CiuicContext, cuda: on_device.Cuda) -> None:
    """Arrays of another library's, by DLPack and the array API."""
    rank, size = ctx.rank, ctx.world_size
    for count in (0, 1, 1000, 300_000):
        x = CudaArray.of(cuda, numpy.full((2, count), rank + 1.0, dtype=numpy.float32))
        assert ctx.all_reduce(x) is x
        assert (x.numpy() == size * (size + 1) / 2).all()
        gathered = ctx.all_gather(CudaArray.of(cuda, numpy.full(count, rank)))
        assert [type(each) for each in gathered] == [CudaArray] * size
        assert all((each.numpy() == r).all() for r, each in enumerate(gathered))
        handle = ctx.all_reduce_async(x)
        assert handle.wait() is x
    several = [CudaArray.of(cuda, numpy.full(n, rank + 1.0)) for n in (3, 0, 70_000, 5)]
    ctx.all_reduce(several)  # packed together on the device
    assert all((x.numpy() == 3).all() for x in several)
    result = ctx.reduce(several[0], dst=1)
    assert (result is None) == (rank == 0)
    whole = CudaArray.of(cuda, numpy.arange(12.0).reshape(6, 2))
    with refused(ValueError, "not contiguous"):
        ctx.all_reduce(CudaArray(cuda, whole.memory, (3, 2), (4, 1), whole.dtype))


def devices(ctx: CiuicContext, cuda: on_device.Cuda) -> None:
    on_gpu = CudaArray.of(cuda, numpy.ones(3))
    on_cpu = numpy.ones(3)
    with refused(ValueError, "different devices", "cpu", f"cuda:{cuda.device}"):
        ctx.all_reduce([on_gpu, on_cpu])
    with refused(ValueError, "different devices"):
        ctx.all_to_all([on_cpu, on_gpu])
    with refused(ValueError, "one device"), ctx.coalesce():
        ctx.all_reduce_async(on_gpu)
        ctx.all_reduce_async(on_cpu)
    ctx.barrier()


def streams(ctx: CiuicContext, cuda: on_device.Cuda) -> None:
    """A blocking call has the stream wait, and what is in it before the call comes before."""
    ones = numpy.ones(1 << 20, dtype=numpy.float32)
    x = CudaArray.of(cuda, numpy.zeros_like(ones))
    for _ in range(3):
        cuda.store(x.address, ones.ctypes.data, ones.nbytes, delay_us=20_000)
        ctx.all_reduce(x)
        assert (x.numpy() == ctx.world_size).all()
    if ctx.backend != "nccl":
        return
    cuda.store(x.address, ones.ctypes.data, ones.nbytes, delay_us=300_000)
    handle = ctx.all_reduce_async(x)
    handle.wait()  # the host goes on while the kernel before is still to come
    assert cuda.library.cudaStreamQuery(cuda.stream) == on_device.NOT_READY
    assert (x.numpy() == ctx.world_size).all()


def graphs(ctx: CiuicContext, cuda: on_device.Cuda) -> None:
    """A stream that is being captured into a CUDA graph is refused."""
    x = CudaArray.of(cuda, numpy.ones(4))
    cuda.call("ciuic_fake_set_capturing", cuda.stream, 1)
    with refused(ValueError, "captured", "Nothing was sent"):
        ctx.all_reduce(x)
    cuda.call("ciuic_fake_set_capturing", cuda.stream, 0)
    assert (ctx.all_reduce(x).numpy() == ctx.world_size).all()


def persistent(ctx: CiuicContext, cuda: on_device.Cuda) -> None:
    """Started again once the stream waits for it, in whatever stream the caller works then."""
    x = CudaArray.of(cuda, numpy.ones(1000, dtype=numpy.float32))
    with ctx.persistent() as step:
        ctx.all_reduce_async(x)
    for _ in range(3):
        step.run()
    assert (x.numpy() == ctx.world_size**3).all()
    other = on_device.Cuda(cuda.device)
    cuda_arrays.work_in(other)
    ones = numpy.ones(1000, dtype=numpy.float32)
    other.store(x.address, ones.ctypes.data, ones.nbytes, delay_us=50_000)
    step.run()
    other.synchronize()
    cuda_arrays.work_in(cuda)
    assert (x.numpy() == ctx.world_size).all()


def two_devices(ctx: CiuicContext, cuda: on_device.Cuda) -> None:
    """One after another in one group; and the caller's last error is left alone."""
    for device in (cuda.device, 2, cuda.device):
        other = on_device.Cuda(device)
        cuda_arrays.work_in(other)
        x = CudaArray.of(other, numpy.ones(200_000))
        assert (ctx.all_reduce(x).numpy() == ctx.world_size).all()
        assert other.library.cudaPeekAtLastError() == 0
    cuda.call("cudaSetDevice", cuda.device)
    cuda_arrays.work_in(cuda)


def a_late_input(ctx: CiuicContext, cuda: on_device.Cuda) -> None:
    """It keeps no earlier call back."""
    first = CudaArray.of(cuda, numpy.ones(500_000))
    handle = ctx.all_reduce_async(first)
    slow = on_device.Cuda(cuda.device)
    ones = numpy.ones(1000)
    second = CudaArray.of(cuda, numpy.zeros(1000))
    cuda.synchronize()
    cuda_arrays.work_in(slow)
    slow.store(second.address, ones.ctypes.data, ones.nbytes, delay_us=400_000)
    late = ctx.all_reduce_async(second)
    cuda_arrays.work_in(cuda)
    handle.wait()
    assert (first.numpy() == ctx.world_size).all()
    assert slow.library.cudaStreamQuery(slow.stream) == on_device.NOT_READY
    late.wait()
    assert (second.numpy() == ctx.world_size).all()


def closed_at_once(cuda: on_device.Cuda) -> None:
    """What a blocking call has returned of is not taken back by close()."""
    x = CudaArray.of(cuda, numpy.zeros(1000))
    with CiuicContext(backend="nccl", timeout_s=60) as ctx:
        ones = numpy.ones(1000)
        cuda.store(x.address, ones.ctypes.data, ones.nbytes, delay_us=100_000)
        ctx.all_reduce(x)
    assert (x.numpy() == ctx.world_size).all()


def late_rank(cuda: on_device.Cuda) -> None:
    """The host waits for nothing, and yet the time-out frees the device."""
    with CiuicContext(backend="nccl", timeout_s=60) as ctx:
        x = CudaArray.of(cuda, numpy.ones(10))
        if ctx.rank == 0:
            ctx.all_reduce(x, timeout_s=1)
            cuda.synchronize()
            with refused(ciuic.TimeoutError, "rank 1 has not called it"):
                ctx.all_reduce(x)
        else:
            with refused(ciuic.TimeoutError, "all_reduce"):
                while ctx.error is None:
                    time.sleep(0.01)
                ctx.all_reduce(x)


def nccl_alone(cuda: on_device.Cuda) -> None:
    with CiuicContext(backend="nccl", timeout_s=60, buffer_size=1 << 25) as ctx:
        assert ctx.backend == "nccl"
        told = ctx.describe()["nccl"]
        assert told["path"] == os.environ["CIUIC_NCCL_LIBRARY"]
        assert told["version"].startswith("2.")
        [setting] = [each for each in told["settings"] if each["name"] == "NCCL_BUFFSIZE"]
        assert (setting["value"], setting["source"]) == (str(1 << 25), "ciuic")
        with refused(ValueError, "all_reduce", "CPU", "Nothing was sent"):
            ctx.all_reduce(numpy.ones(3))
        other = CudaArray.of(on_device.Cuda(3), numpy.ones(3))
        cuda.call("cudaSetDevice", cuda.device)
        with refused(ValueError, "cuda:3"):
            ctx.all_reduce(other)
        with refused(ValueError, "not from any"):
            ctx.recv(CudaArray.of(cuda, numpy.ones(3)), None)
        for part in (dlpack, streams, graphs, persistent):
            part(ctx, cuda)
        with ctx.shrink() as again:  # nothing is wrong: all ranks go on in a new group
            assert again.backend == "nccl"
            x = CudaArray.of(cuda, numpy.ones(3))
            assert (again.all_reduce(x).numpy() == again.world_size).all()
            again.barrier()
    closed_at_once(cuda)
    late_rank(cuda)


def on_the_cpu_of_one_rank(cuda: on_device.Cuda) -> None:
    """By auto the ranks then wait for each other in two libraries, whoever is first."""
    for on_cpu in (0, 1):
        with (
            CiuicContext(timeout_s=60) as ctx,
            refused(ciuic.MismatchError, "all_reduce", "on the CPU or on a GPU"),
        ):
            ones = numpy.ones(300_000)
            ctx.all_reduce(ones if ctx.rank == on_cpu else CudaArray.of(cuda, ones), timeout_s=5)
            ctx.barrier()


def chosen(cuda: on_device.Cuda, rank: int) -> None:
    """All ranks take the same backend, and say why."""
    with CiuicContext(timeout_s=60) as ctx:
        assert ctx.backend == "nccl", ctx.describe()["backend_why"]
        assert "every rank has a GPU of its own" in ctx.describe()["backend_why"]
        assert (ctx.all_reduce(numpy.full(3, rank)) == 1).all()  # the CPU's, by native
        for part in (dlpack, devices, streams):
            part(ctx, cuda)
    on_the_cpu_of_one_rank(cuda)
    cuda.call("cudaSetDevice", 0)  # both
    with CiuicContext(timeout_s=60) as ctx:
        assert ctx.backend == "native"
        why = ctx.describe()["backend_why"]
        assert "are both on GPU" in why, why
        first = on_device.Cuda(0)
        cuda_arrays.work_in(first)
        assert (ctx.all_reduce(CudaArray.of(first, numpy.full(3, rank))).numpy() == 1).all()
        cuda_arrays.work_in(cuda)
    with refused(ciuic.UnavailableError, "are both on GPU", "backend="):
        CiuicContext(backend="nccl", timeout_s=60)
    cuda.call("cudaSetDevice", cuda.device)
    with refused(ciuic.MismatchError, "backend"):
        CiuicContext(backend="native" if rank == 0 else "auto", timeout_s=60)


def staged(cuda: on_device.Cuda) -> None:
    with CiuicContext(backend="native", timeout_s=60) as ctx:
        assert ctx.backend == "native"
        for part in (dlpack, devices, streams, graphs, persistent, two_devices, a_late_input):
            part(ctx, cuda)
        held: dict[str, Any] = ctx.memory_usage()
        assert held["staging"] > 0
        ctx.barrier()
        assert held["staging"] <= 64 << 20


def main() -> None:
    rank = int(os.environ["RANK"])
    cuda = on_device.Cuda(rank)
    cuda_arrays.work_in(cuda)
    staged(cuda)
    nccl_alone(cuda)
    chosen(cuda, rank)
    print("all good")


main()
