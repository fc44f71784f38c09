# SPDX-License-Identifier: Apache-2.0
"""Collectives with one rank, on every kind of array."""

import gc
import weakref

import ciuic
import ml_dtypes
import numpy
import pytest
import torch
from ciuic import CiuicContext, _native

TORCH_DTYPES = [getattr(torch, name) for name in ciuic.dtypes.names()]
NUMPY_DTYPES = [numpy.dtype(getattr(ml_dtypes, name, name)) for name in ciuic.dtypes.names()]


@pytest.mark.parametrize("op", ciuic.ReduceOp, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_all_reduce_torch(ctx: CiuicContext, dtype: torch.dtype, op: ciuic.ReduceOp) -> None:
    x = torch.arange(7).to(dtype)
    expected = x.clone()
    if not _native.is_reducible(_native.dtype_codes[str(dtype).removeprefix("torch.")], op):
        for _ in range(2):
            with pytest.raises(ValueError, match=f"^.*{op.name.lower()} is not defined for"):
                ciuic.all_reduce(x, op, ctx)
        return
    for _ in range(2):  # the first call enters the type, the second takes the direct path
        assert ciuic.all_reduce(x, op, ctx) is x
        assert torch.equal(x, expected)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
def test_all_reduce_numpy(ctx: CiuicContext, dtype: numpy.dtype) -> None:
    x = numpy.arange(7).astype(dtype)
    for _ in range(2):
        assert ctx.all_reduce(x) is x
        assert (x == numpy.arange(7).astype(dtype)).all()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (2, 3)])
def test_shapes(ctx: CiuicContext, shape: tuple[int, ...]) -> None:
    for x in (torch.ones(shape), numpy.ones(shape, dtype=numpy.float32)):
        assert ctx.all_reduce(x) is x
        assert ctx.broadcast(x) is x
        (gathered,) = ctx.all_gather(x)
        reduced = ctx.reduce(x)
        for result in (gathered, reduced):
            assert type(result) is type(x)
            assert result.shape == x.shape
            assert result.dtype == x.dtype
            assert (result == 1).all()


def test_results_are_new_arrays(ctx: CiuicContext) -> None:
    x = torch.tensor([1.0, 2.0])
    (gathered,) = ctx.all_gather(x)
    reduced = ctx.reduce(x)
    x.fill_(9)
    assert gathered.tolist() == [1.0, 2.0]
    assert reduced.tolist() == [1.0, 2.0]


def test_all_gather_of_int64(ctx: CiuicContext) -> None:
    assert ctx.all_gather(torch.tensor([5])) == [torch.tensor([5])]


def test_async(ctx: CiuicContext) -> None:
    x = torch.ones(5)
    handle = ciuic.all_reduce_async(x, context=ctx)
    assert ciuic.all_reduce_wait(handle) is x
    assert handle.done()
    assert handle.wait() is x  # once more
    assert ctx.broadcast_async(x).wait() is x
    assert ctx.reduce_async(x).wait().tolist() == [1.0] * 5
    assert ctx.all_gather_async(x).wait()[0].tolist() == [1.0] * 5
    assert ctx.barrier_async().wait() is None
    assert ctx.barrier() is None


def test_handle_keeps_the_array_and_lets_it_go(ctx: CiuicContext) -> None:
    x = torch.ones(1000)
    alive = weakref.ref(x)
    handle = ciuic.all_reduce_async(x, context=ctx)
    del x
    gc.collect()
    assert alive() is not None
    handle.wait()
    del handle
    gc.collect()
    assert alive() is None


def test_handle_that_is_dropped_lets_the_array_go(ctx: CiuicContext) -> None:
    x = torch.ones(1000)
    alive = weakref.ref(x)
    ciuic.all_reduce_async(x, context=ctx)
    ctx.barrier()
    del x
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("make", [lambda b: b[::2], lambda b: b.T, lambda b: b[1:, ::3]])
def test_strides(ctx: CiuicContext, make) -> None:
    for base in (torch.arange(24.0).reshape(4, 6), numpy.arange(24.0).reshape(4, 6)):
        x = make(base)
        expected = x * 1
        assert ctx.all_reduce(x) is x
        assert (x == expected).all()
        ciuic.all_reduce_async(x, context=ctx).wait()
        assert (x == expected).all()
        assert (ctx.all_gather(x)[0] == expected).all()
        assert (ctx.reduce(x) == expected).all()


def test_iterable(ctx: CiuicContext) -> None:
    arrays = [torch.arange(5.0), torch.arange(6.0).reshape(2, 3).T, torch.empty(0)]
    expected = [x.clone() for x in arrays]
    assert ciuic.all_reduce(arrays, context=ctx) is arrays
    assert all(torch.equal(x, y) for x, y in zip(arrays, expected, strict=True))
    ciuic.all_reduce_async(arrays, context=ctx).wait()
    assert all(torch.equal(x, y) for x, y in zip(arrays, expected, strict=True))
    assert ciuic.all_reduce([], context=ctx) == []
    ciuic.all_reduce((x for x in arrays), context=ctx)


def test_iterable_of_numpy_and_torch(ctx: CiuicContext) -> None:
    arrays = [numpy.ones(3, dtype=numpy.float32), torch.ones(2)]
    ciuic.all_reduce(arrays, context=ctx)
    assert all((x == 1).all() for x in arrays)


def test_parameters(ctx: CiuicContext) -> None:
    model = torch.nn.ModuleList([torch.nn.Linear(3, 2), torch.nn.Linear(2, 2, dtype=torch.float64)])
    model[0](torch.ones(1, 3)).sum().backward()
    before = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    values = [p.detach().clone() for p in model.parameters()]
    ciuic.all_reduce(model.parameters(), context=ctx)
    for p, gradient, value in zip(model.parameters(), before, values, strict=True):
        assert torch.equal(p, value)
        assert (p.grad is None) == (gradient is None)
        if gradient is not None:
            assert torch.equal(p.grad, gradient)


def test_gradients_of_several_dtypes(ctx: CiuicContext) -> None:
    model = torch.nn.ModuleList([torch.nn.Linear(3, 2), torch.nn.Linear(3, 2, dtype=torch.float64)])
    for layer in model:
        layer(torch.ones(1, 3, dtype=layer.weight.dtype)).sum().backward()
    ciuic.all_reduce(model.parameters(), context=ctx)
    assert all((p.grad == 1).all() for p in model.parameters())


def test_broadcast_of_parameters_sends_values(ctx: CiuicContext) -> None:
    layer = torch.nn.Linear(3, 2)
    value = layer.weight.detach().clone()
    ctx.broadcast(layer.parameters())
    assert torch.equal(layer.weight, value)


def test_autograd_sees_the_write(ctx: CiuicContext) -> None:
    w = torch.ones(3, requires_grad=True)
    for _ in range(2):
        x = torch.ones(3)
        loss = (w * x).sum()
        ctx.all_reduce(x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_other_library_by_dlpack(ctx: CiuicContext) -> None:
    class Foreign:
        """An array that speaks DLPack and nothing else."""

        def __init__(self, array) -> None:
            self.array = array

        def __dlpack__(self, **kwargs):
            return self.array.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x = Foreign(torch.ones(4, 4, dtype=torch.bfloat16).T)
    assert ctx.all_reduce(x) is x
    assert x.array.tolist() == torch.ones(4, 4).tolist()
    z = Foreign(torch.full((4,), 1 + 2j))
    assert ctx.all_reduce(z) is z
    (gathered,) = ctx.all_gather(z)
    assert gathered.dtype == numpy.complex64
    assert gathered.tolist() == [1 + 2j] * 4
    with pytest.raises(ValueError, match="cannot be reduced"):
        ctx.all_reduce(Foreign(torch.ones(4, dtype=torch.float8_e5m2fnuz)))
    frozen = numpy.ones(3)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        ctx.all_reduce(Foreign(frozen))


def test_unaligned_array(ctx: CiuicContext) -> None:
    raw = numpy.zeros(4 * 5 + 1, dtype=numpy.uint8)
    x = raw[1:].view(numpy.float32)
    x[:] = 3
    ctx.all_reduce(x)
    ctx.all_reduce(x)
    assert x.tolist() == [3.0] * 5
