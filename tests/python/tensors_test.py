# SPDX-License-Identifier: Apache-2.0
"""ciuic.empty: arrays of every kind, whose memory is counted, and comes back."""

import gc

import ciuic
import ml_dtypes
import numpy
import pytest
from ciuic import CiuicContext


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        numpy.float64,
        numpy.dtype("int16"),
        bool,
        numpy.complex128,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        "S7",
        numpy.dtype([("a", "f4"), ("b", "i8")]),
    ],
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (5, 7), (100, 1000), (3, 0, 2)])
def test_arrays(ctx: CiuicContext, dtype: object, shape: tuple[int, ...]) -> None:
    x = ciuic.empty(shape, dtype, context=ctx)
    assert type(x) is numpy.ndarray
    assert x.shape == shape
    assert x.dtype == numpy.dtype(dtype)
    assert x.flags.c_contiguous
    assert x.flags.writeable
    assert x.__array_interface__["data"][0] % 64 == 0 or x.size == 0
    x[...] = numpy.zeros((), x.dtype)
    ctx.broadcast(x)


@pytest.mark.parametrize(
    "name",
    [
        *("float32", "float64", "bfloat16", "float16", "int8", "uint8", "int64", "bool"),
        *("complex64", "complex32", "float8_e4m3fn", "float8_e5m2", "uint16"),
    ],
)
@pytest.mark.parametrize("shape", [(), (0,), (5, 7), (100, 1000), (3, 0, 2)])
def test_tensors(ctx: CiuicContext, name: str, shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    x = ctx.empty(shape, dtype)
    assert type(x) is torch.Tensor
    assert tuple(x.shape) == shape
    assert x.dtype is dtype
    assert x.is_contiguous()
    assert x.data_ptr() % 64 == 0
    x.view(torch.uint8).fill_(1) if x.dim() > 0 else x.fill_(1)
    ctx.broadcast(x)


def test_a_number_is_a_shape(ctx: CiuicContext) -> None:
    assert ctx.empty(12, "int32").shape == (12,)
    assert ctx.empty([3, numpy.int64(4)], "int32").shape == (3, 4)


@pytest.mark.parametrize("shape", [-1, (3, -1), 1.5, (2.0,), "12", None])
def test_no_shape(ctx: CiuicContext, shape: object) -> None:
    with pytest.raises(ValueError, match="shape"):
        ctx.empty(shape, "float32")  # type: ignore[arg-type]


def test_no_dtype(ctx: CiuicContext) -> None:
    with pytest.raises(ValueError, match="addresses"):
        ctx.empty(3, object)
    with pytest.raises(TypeError):
        ctx.empty(3, "no such dtype")
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="scales"):
        ctx.empty(3, torch.qint8)


def test_too_much(ctx: CiuicContext) -> None:
    with pytest.raises(ciuic.ResourceError, match="35184372088832 bytes"):
        ctx.empty(1 << 45, "uint8")


def test_memory_is_counted_and_comes_back(ctx: CiuicContext) -> None:
    def tensors() -> int:
        return ctx.memory_usage()["tensors"]

    assert tensors() == 0
    x = ctx.empty((1000, 1000), "float32")
    used = tensors()
    assert used >= 4_000_000
    view = x[500:].reshape(-1)[::3]
    del x
    gc.collect()
    view.fill(3)
    assert tensors() == used
    del view
    gc.collect()
    for _ in range(20):
        ctx.empty((1000, 1000), "float32").fill(1)
    assert tensors() == used  # kept for the next, and no more


def test_a_tensor_outlives_its_context() -> None:
    def mappings() -> int:
        with open("/proc/self/maps") as file:
            return sum("ciuic-tensors" in line for line in file)

    before = mappings()
    ctx = CiuicContext(world_size=1, rank=0)
    x = ctx.empty(1_000_000, "float32")
    y = ctx.empty(1_000_000, "float32")
    assert mappings() == before + 2
    ctx.close()
    with pytest.raises(ciuic.ClosedError):
        ctx.empty(3, "float32")
    del y
    gc.collect()
    assert mappings() == before + 1
    x.fill(7)
    assert (x == 7).all()
    with CiuicContext(world_size=1, rank=0) as another:
        another.all_reduce(x)
    del x
    gc.collect()
    assert mappings() == before


def test_an_array_over_the_memory_is_all_that_keeps_it(ctx: CiuicContext) -> None:
    x = memoryview(ctx.empty(100_000, "uint8"))
    assert x.nbytes == 100_000
    assert not x.readonly
    x[99_999] = 5
    assert x[99_999] == 5
