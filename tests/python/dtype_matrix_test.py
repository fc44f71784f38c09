# SPDX-License-Identifier: Apache-2.0
"""Every dtype of PyTorch, NumPy and ml_dtypes: moved by everything that moves, and reduced, or not.

One rank: what comes out is what went in. tests/multiprocess/dtypes_test.py checks the numbers.
"""

import subprocess
import sys
import warnings
from typing import Any

import ciuic
import ml_dtypes
import numpy
import pytest
import torch
from ciuic import CiuicContext, ReduceOp, _native

TORCH_DTYPES = sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str)
QUANTIZED = (torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4)
OF_ML_DTYPES = [
    numpy.dtype(scalar)
    for scalar in vars(ml_dtypes).values()
    if isinstance(scalar, type) and issubclass(scalar, numpy.generic)
]
NUMPY_DTYPES = [
    *(numpy.dtype(letter) for letter in numpy.typecodes["All"] if letter not in "OSUV"),
    *OF_ML_DTYPES,
    *(numpy.dtype(text) for text in (">f4", ">i8", ">c16", ">M8[s]", "S8", "U3", "V5", "m8[ms]")),
    numpy.dtype([("number", "<i4"), ("text", "S3"), ("matrix", "<f8", (2, 2))]),
    numpy.dtype({"names": ["a", "b"], "formats": ["u1", "<f8"], "offsets": [0, 8], "itemsize": 24}),
]


def name_of(dtype: Any) -> str:
    """As the table of dtypes has it, if it does."""
    return str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else dtype.name


def is_reducible(dtype: Any, op: ReduceOp) -> bool:
    code = _native.dtype_codes.get(name_of(dtype))
    native = isinstance(dtype, torch.dtype) or dtype.isnative
    return native and code is not None and _native.is_reducible(code, op)


def torch_bytes(x: torch.Tensor) -> bytes:
    return x.contiguous().view(torch.uint8).numpy().tobytes()


def torch_array(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Of bits that are nobody's default, and no NaN, of which many are one. Bools are 0 or 1."""
    count = int(numpy.prod(shape)) * torch.empty(0, dtype=dtype).element_size()
    bits = torch.arange(count, dtype=torch.int64) * 37 + 11
    bits = bits % 2 if dtype == torch.bool else bits % 100
    return bits.to(torch.uint8).view(dtype).reshape(shape)


def numpy_array(dtype: numpy.dtype, *shape: int) -> numpy.ndarray:
    count = int(numpy.prod(shape)) * dtype.itemsize
    bits = numpy.arange(count) * 37 + 11
    bits = bits % 2 if dtype.kind == "b" else bits % 100
    return bits.astype(numpy.uint8).view(dtype).reshape(shape)


def same(a: numpy.ndarray, b: numpy.ndarray) -> bool:
    """Bit for bit, but for what lies between the fields of a record."""
    if a.dtype.names:
        return all(same(a[name], b[name]) for name in a.dtype.names)
    return a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", [d for d in TORCH_DTYPES if d not in QUANTIZED], ids=str)
def test_torch(ctx: CiuicContext, dtype: torch.dtype) -> None:
    x = torch_array(dtype, 3, 4)
    before = torch_bytes(x)
    for op in ReduceOp:
        if is_reducible(dtype, op):
            assert ctx.all_reduce(x, op) is x
            assert torch_bytes(ctx.reduce(x, 0, op)) == before
            assert torch_bytes(ctx.reduce_scatter(x, op)) == before
        else:
            for call in (ctx.all_reduce, ctx.reduce, ctx.reduce_scatter):
                with pytest.raises(ValueError, match=r"(there are|is defined) .*Nothing was sent"):
                    call(x, op=op)
    results = [
        ctx.broadcast(x),
        ctx.broadcast([x])[0],
        ctx.all_gather(x)[0],
        ctx.all_gather_v(x)[0],
        ctx.gather(x)[0],
        ctx.scatter(torch_array(dtype, 3, 4), [x]),
        ctx.all_to_all(x),
        ctx.all_to_all_v(x, [3], [3]),
        ctx.all_to_all([x])[0],
    ]
    for result in results:
        assert result.dtype == dtype
        assert torch_bytes(result) == before
    assert torch_bytes(x) == before


@pytest.mark.parametrize("dtype", [d for d in TORCH_DTYPES if d not in QUANTIZED], ids=str)
def test_torch_strided(ctx: CiuicContext, dtype: torch.dtype) -> None:
    whole = torch_array(dtype, 4, 6)
    before = torch_bytes(whole)
    part = whole[:, ::2]
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
    expected = torch_bytes(part.view(bits[part.element_size()]))
    assert ctx.broadcast(part) is part
    assert torch_bytes(ctx.all_gather(part)[0]) == expected
    assert torch_bytes(whole) == before


def test_torch_quantized(ctx: CiuicContext) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in (torch.qint8, torch.quint8, torch.qint32):
            x = torch.quantize_per_tensor(torch.arange(6.0).reshape(2, 3), 0.5, 1, dtype)
            assert ctx.broadcast(x) is x
            for result in (ctx.all_gather(x)[0], ctx.all_gather(x.t())[0].t(), ctx.all_to_all(x)):
                assert result.q_scale() == x.q_scale()
                assert torch.equal(result.int_repr(), x.int_repr())
            with pytest.raises(ValueError, match="cannot be reduced"):
                ctx.all_reduce(x)
        packed = torch.quantize_per_tensor(torch.arange(8.0), 0.5, 1, torch.quint4x2)
        scales = torch.tensor([0.1, 0.2])
        by_row = torch.quantize_per_channel(
            torch.ones(2, 3), scales, torch.zeros(2), 0, torch.qint8
        )
        for x in (packed, by_row):
            for call in (ctx.all_reduce, ctx.broadcast, ctx.all_gather):
                with pytest.raises(ValueError, match=r"int_repr.*Nothing was sent"):
                    call(x)


def test_torch_conjugates(ctx: CiuicContext) -> None:
    """Their memory holds other numbers than they do."""
    for dtype in (torch.complex64, torch.complex128):
        z = torch.tensor([1 + 2j, 3 - 4j], dtype=dtype)
        conjugate = z.conj()
        assert conjugate.is_conj()
        expected = [1 - 2j, 3 + 4j]
        for _ in range(2):
            assert ctx.all_reduce(conjugate) is conjugate
            assert conjugate.tolist() == expected
        assert z.tolist() == [1 + 2j, 3 - 4j]
        assert ctx.all_gather(conjugate)[0].resolve_conj().tolist() == expected
        assert ctx.reduce(conjugate).resolve_conj().tolist() == expected
        assert ctx.all_reduce([conjugate])[0].tolist() == expected
        negative = conjugate.imag  # is_neg(): a view of z's imaginary parts
        assert ctx.all_gather(negative)[0].tolist() == [-2, 4]


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
def test_numpy(ctx: CiuicContext, dtype: numpy.dtype) -> None:
    x = numpy_array(dtype, 3, 4)
    before = x.tobytes()
    for op in ReduceOp:
        if is_reducible(dtype, op):
            assert ctx.all_reduce(x, op) is x
            assert ctx.reduce(x, 0, op).tobytes() == before
            assert ctx.reduce_scatter(x, op).tobytes() == before
        else:
            for call in (ctx.all_reduce, ctx.reduce, ctx.reduce_scatter):
                with pytest.raises(
                    ValueError, match=r"(there are|is defined|astype).*Nothing was sent"
                ):
                    call(x, op=op)
    for result in (
        ctx.broadcast(x),
        ctx.broadcast([x])[0],
        ctx.all_gather(x)[0],
        ctx.all_gather_v(x)[0],
        ctx.gather(x)[0],
        ctx.scatter(numpy.zeros_like(x), [x]),
        ctx.all_to_all(x),
        ctx.all_to_all_v(x, [3], [3]),
        ctx.all_to_all([x])[0],
    ):
        assert result.dtype == dtype
        assert result.tobytes() == before


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
def test_numpy_strided(ctx: CiuicContext, dtype: numpy.dtype) -> None:
    whole = numpy_array(dtype, 4, 6)
    before = whole.tobytes()
    part = whole[::2, ::-3].T
    assert ctx.broadcast(part) is part
    assert whole.tobytes() == before
    for result in (ctx.all_gather(part)[0], ctx.gather(part)[0]):
        assert same(result, part)
    scalar = numpy_array(dtype, 1).reshape(())
    assert ctx.all_gather(scalar)[0].tobytes() == scalar.tobytes()
    assert ctx.all_gather(whole[:0])[0].shape == (0, 6)


def test_misaligned(ctx: CiuicContext) -> None:
    memory = numpy.arange(41, dtype=numpy.uint8)
    for dtype in ("<f4", "<c16", "datetime64[s]"):
        x = memory[1 : 1 + 32].view(dtype)
        assert not x.flags.aligned
        assert ctx.broadcast(x) is x
        assert ctx.all_gather(x)[0].tobytes() == x.tobytes()
    assert memory.tolist() == list(range(41))


def test_complex_numbers_between_their_own_bounds(ctx: CiuicContext) -> None:
    """NumPy aligns them to their parts: half their size."""
    memory = numpy.arange(9.0)
    for parts in (memory[0:8], memory[1:9]):
        z = parts.view(numpy.complex128)
        assert z.flags.aligned
        before = z.tolist()
        for _ in range(2):
            assert ctx.all_reduce(z).tolist() == before
            assert ctx.all_reduce([z])[0].tolist() == before
            assert ctx.all_gather(z)[0].tolist() == before


def test_elements_of_no_bytes(ctx: CiuicContext) -> None:
    x = numpy.zeros(3, "V0")
    assert ctx.broadcast(x) is x
    assert ctx.all_gather(x)[0].shape == (3,)


def test_several_arrays_of_one_dtype(ctx: CiuicContext) -> None:
    times = [numpy_array(numpy.dtype("M8[s]"), n) for n in (3, 0, 5)]
    before = [x.tobytes() for x in times]
    assert ctx.broadcast(times) is times
    assert [x.tobytes() for x in times] == before
    for other in (numpy_array(numpy.dtype("S8"), 2), numpy.zeros(2, numpy.uint8)):
        with pytest.raises(ValueError, match="different dtypes"):
            ctx.broadcast([times[0], other])
    with pytest.raises(ValueError, match="cannot be reduced"):
        ctx.all_reduce(times)


def test_what_exists_is_named(ctx: CiuicContext) -> None:
    with pytest.raises(ValueError) as told:
        ctx.all_reduce(torch.ones(2, dtype=torch.bool), ReduceOp.AVG)
    assert "avg is not defined for bool, which has sum, min, max, product, band, bor, bxor;" in str(
        told.value
    )
    assert "avg is defined for float32, float64," in str(told.value)
    with pytest.raises(ValueError, match="max is not defined for complex64, which has sum, avg, p"):
        ctx.reduce(numpy.ones(2, numpy.complex64), op=ReduceOp.MAX)
    ctx.barrier()


def test_numpy_alone() -> None:
    """ciuic imports neither ml_dtypes nor torch, and needs neither."""
    program = """
import sys, numpy, ciuic
with ciuic.CiuicContext(world_size=1, rank=0) as ctx:
    for dtype in ("float32", "complex64", "uint16", "bool", "M8[s]", ">f4"):
        x = numpy.zeros(3, dtype)
        ctx.broadcast(x)
        ctx.all_gather(x)
    ctx.all_reduce(numpy.zeros(3, "uint64"), ciuic.ReduceOp.BXOR)
assert not {"ml_dtypes", "torch"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    assert ciuic.ReduceOp.BXOR == 7
