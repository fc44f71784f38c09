# SPDX-License-Identifier: Apache-2.0
"""Every dtype and op against NumPy and ml_dtypes, and every other dtype moved. Run by all ranks.

All ranks make all ranks' inputs from the same seed, so each knows the right bits by itself.
"""

import functools
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import ciuic
import ml_dtypes
import numpy
import torch
from ciuic import CiuicContext, ReduceOp, _native

Array = Any

DTYPES = {name: numpy.dtype(getattr(ml_dtypes, name, name)) for name in ciuic.dtypes.names()}
IN_MPI = False  # another library adds up: in its order, a hop at a time
IN_NCCL = False  # likewise; and its MIN and MAX have rules of their own for NaN and -0
SMALL = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")  # computed in float32
COMPLEX = {"complex64": numpy.dtype("f4"), "complex128": numpy.dtype("f8")}
COUNT = 1200
REFUSED_IN_NCCL = ("int16", "uint16", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2")

warnings.filterwarnings("ignore", "ComplexHalf")


def is_float(name: str) -> bool:
    return name.startswith(("float", "bfloat", "complex"))


def inputs(name: str, op: ReduceOp, size: int) -> list[Array]:
    """Of each rank: any bits; of pairs of 8-bit numbers all that there are."""
    random = numpy.random.default_rng(len(name) * 100 + op)
    dtype = DTYPES[name]
    if dtype.itemsize == 1 and name != "bool" and size == 2:
        codes = numpy.arange(65536)
        return [(codes >> 8).astype("u1").view(dtype), codes.astype("u1").view(dtype)]
    bits = [random.integers(0, 256, COUNT * dtype.itemsize, "u1") for _ in range(size)]
    if name == "bool":
        return [(x & 1).view(dtype) for x in bits]
    arrays = [x.view(dtype) for x in bits]
    if is_float(name) and name not in SMALL:
        for rank, x in enumerate(arrays):  # most of them near 1, so that sums say something
            parts = x.view(COMPLEX.get(name, dtype))
            parts[100:] = random.uniform(-2, 2, parts.size - 100)
            parts[:4] = numpy.roll([0.0, -0.0, numpy.inf, numpy.nan], rank)
    return arrays


# ---- what must come out ----


def least(a: Array, b: Array, larger: bool) -> Array:
    """IEEE 754-2019 minimum, or maximum: a NaN wins, and -0 is less than 0."""
    result = (numpy.maximum if larger else numpy.minimum)(a, b)
    if a.dtype.kind != "f":
        return result
    of_zeros = numpy.copysign(a, numpy.where(larger, 1, -1) * numpy.ones_like(a))
    mixed = (a == 0) & (b == 0) & (numpy.signbit(a) != numpy.signbit(b))
    return numpy.where(mixed, of_zeros, result)


def multiply(a: Array, b: Array) -> Array:
    """Complex numbers by the school's formula, without NumPy's fused operations."""
    if a.dtype.kind != "c":
        return a * b
    result = numpy.empty_like(a)
    result.real = a.real * b.real - a.imag * b.imag
    result.imag = a.real * b.imag + a.imag * b.real
    return result


def either(a: Array, b: Array) -> Array:
    return a | b if a.dtype.kind == "b" else a + b


FUNCTIONS: dict[ReduceOp, Callable[[Array, Array], Array]] = {
    ReduceOp.SUM: either,
    ReduceOp.AVG: either,
    ReduceOp.MIN: functools.partial(least, larger=False),
    ReduceOp.MAX: functools.partial(least, larger=True),
    ReduceOp.PRODUCT: multiply,
    ReduceOp.BAND: numpy.bitwise_and,
    ReduceOp.BOR: numpy.bitwise_or,
    ReduceOp.BXOR: numpy.bitwise_xor,
}


def averaged(name: str, arrays: list[Array]) -> Array:
    """docs/dtypes.md: floats are scaled before they are added, integers divided after it."""
    size = len(arrays)
    if name in SMALL:
        factor = numpy.float32(1) / numpy.float32(size)
        return functools.reduce(either, [x * factor for x in arrays])
    if not is_float(name):
        total = functools.reduce(either, arrays)
        exact = [abs(n) // size * (-1 if n < 0 else 1) for n in total.tolist()]
        return numpy.array(exact, total.dtype)
    part = COMPLEX.get(name, DTYPES[name])
    power = 2.0 ** (size - 1).bit_length()
    scaled = [x.view(part) * part.type(1 / power) for x in arrays]
    return (functools.reduce(either, scaled) * part.type(power / size)).view(arrays[0].dtype)


def expected(name: str, op: ReduceOp, arrays: list[Array]) -> Array:
    with numpy.errstate(all="ignore"):
        if name in SMALL:
            arrays = [x.astype(numpy.float32) for x in arrays]
        if op is ReduceOp.AVG:
            result = averaged(name, arrays)
        else:
            result = functools.reduce(FUNCTIONS[op], arrays)
        return result.astype(DTYPES[name])


def bits(x: Array) -> Array:
    """One number for each part of an element, with one NaN."""
    part = COMPLEX.get(x.dtype.name)
    x = x.view(part) if part is not None else x.copy()
    if is_float(x.dtype.name):
        x[numpy.isnan(x)] = numpy.nan
    return x.view(f"u{x.dtype.itemsize}")


def is_nan_canonical(x: Array) -> bool:
    """All NaNs have the bits of one that is positive and quiet, and no others."""
    part = COMPLEX.get(x.dtype.name)
    parts = x.view(part) if part is not None else x
    codes = parts.view(f"u{parts.dtype.itemsize}")[numpy.isnan(parts)]
    canonical = {2: {"float16": 0x7E00, "bfloat16": 0x7FC0}.get(x.dtype.name), 4: 0x7FC00000}
    canonical |= {
        1: {"float8_e4m3fn": 0x7F, "float8_e5m2": 0x7E}.get(x.dtype.name),
        8: 0x7FF8 << 48,
    }
    return bool((codes == canonical[parts.dtype.itemsize]).all())


def check(what: str, got: Array, wanted: Array, arrays: list[Array], is_exact: bool) -> None:
    name = wanted.dtype.name
    different = bits(got) != bits(wanted)
    if IN_NCCL and is_float(name):
        kinds = [x.view(COMPLEX.get(name, wanted.dtype)) for x in arrays]
        with numpy.errstate(all="ignore"):
            odd = functools.reduce(numpy.logical_or, [numpy.isnan(x) | (x == 0) for x in kinds])
        different &= ~odd
    elif is_float(name) and not (IN_MPI and name in ("float32", "float64")):  # MPI's own sums
        assert is_nan_canonical(got), f"{what}: a NaN is not the canonical one"
    if not different.any():
        return
    first = numpy.nonzero(different)[0][:4]
    assert not is_exact, f"{what}: {bits(got)[first]} is not {bits(wanted)[first]}, at {first}"
    # The order differs, and 16-bit and 8-bit floats are rounded once a hop.
    part = COMPLEX.get(name, wanted.dtype)
    a, b, *terms = (x.view(part).astype(numpy.float64) for x in (got, wanted, *arrays))
    info = ml_dtypes.finfo(part)
    with numpy.errstate(all="ignore"):
        size = functools.reduce(numpy.add, [numpy.abs(x) for x in terms]) + numpy.abs(b)
        # What is near the largest number may or may not overflow on the way.
        odd = ~numpy.isfinite(size) | ~numpy.isfinite(a) | (size > float(info.max) / 2)
        allowed = len(arrays) * (float(info.eps) * size + float(info.smallest_subnormal))
        bad = different & ~odd & ~(numpy.abs(a - b) <= allowed)
    assert not bad.any(), f"{what}: {a[bad][:3]} is not {b[bad][:3]}"


# ---- the parts ----


def as_torch(x: Array) -> torch.Tensor:
    return torch.from_numpy(x.view("u1").copy()).view(getattr(torch, x.dtype.name))


def as_numpy(x: torch.Tensor, dtype: numpy.dtype) -> Array:
    return x.view(torch.uint8).numpy().view(dtype)


def is_exact_in(name: str, op: ReduceOp, size: int, in_rank_order: bool) -> bool:
    if in_rank_order or not is_float(name) or op in (ReduceOp.MIN, ReduceOp.MAX):
        return True
    # Others round small floats once they are scaled for AVG, and again.
    return size == 2 and not ((IN_MPI or IN_NCCL) and op is ReduceOp.AVG)


def nccl_reduces(ctx: CiuicContext, name: str, op: ReduceOp) -> bool:
    """What NCCL has not is refused on every rank, and nothing is sent."""
    try:
        ctx.all_reduce(numpy.zeros(3, DTYPES[name]), op)
    except ciuic.UnsupportedError as error:
        assert "Nothing was sent" in str(error), error
        is_bitwise = op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
        assert is_bitwise or name in REFUSED_IN_NCCL, f"{name} {op.name}: {error}"
        return False
    return True


def reductions(ctx: CiuicContext, in_rank_order: bool) -> int:
    """In rank order: small floats are added up in float32 from rank 0 on, and rounded once."""
    rank, size = ctx.rank, ctx.world_size
    pairs = 0
    for name, dtype in DTYPES.items():
        for op in ReduceOp:
            if not _native.is_reducible(_native.dtype_codes[name], op):
                for x in (numpy.zeros(3, dtype), torch.zeros(3).to(getattr(torch, name))):
                    try:
                        ctx.all_reduce(x, op)
                    except ValueError as error:
                        assert "is not defined for" in str(error)
                        assert "Nothing was sent" in str(error)
                    else:
                        raise AssertionError(f"{op.name} of {name} is none")
                continue
            if IN_NCCL and not nccl_reduces(ctx, name, op):
                continue
            pairs += 1
            arrays = inputs(name, op, size)
            wanted = expected(name, op, arrays)
            is_exact = is_exact_in(name, op, size, in_rank_order)
            what = f"{name} {op.name}"
            x = arrays[rank].copy()
            ctx.all_reduce(x, op)
            check(f"all_reduce {what}", x, wanted, arrays, is_exact)
            tensor = as_torch(arrays[rank])
            ctx.all_reduce(tensor, op)
            assert (bits(as_numpy(tensor, dtype)) == bits(x)).all(), f"torch {what}"
            if pairs % 2 == 0:
                reduced = ctx.reduce(arrays[rank], pairs // 2 % size, op)
                if reduced is not None:
                    check(f"reduce {what}", reduced, wanted, arrays, is_exact)
            else:
                part = ctx.reduce_scatter(arrays[rank][: COUNT // size * size], op)
                own = slice(rank * part.size, (rank + 1) * part.size)
                terms = [each[own] for each in arrays]
                check(f"reduce_scatter {what}", part, wanted[own], terms, is_exact)
    return pairs


def averages_near_the_largest(ctx: CiuicContext) -> None:
    """The sum overflows, the average does not."""
    small = ("float8_e5m2", "float8_e4m3fn")
    for name in ("float16", *(() if IN_NCCL else small), "bfloat16", "float32", "float64"):
        most = float(ml_dtypes.finfo(DTYPES[name]).max)
        x = numpy.full(5, 40000.0 if name == "float16" else 0.9 * most, DTYPES[name])
        value = float(x[0])
        ctx.all_reduce(x, ReduceOp.AVG)
        error = numpy.abs(x.astype(numpy.float64) / value - 1)
        assert (error <= 4 * float(ml_dtypes.finfo(DTYPES[name]).eps)).all(), f"{name}: {x}"


OF_ML_DTYPES = [
    numpy.dtype(scalar)
    for scalar in vars(ml_dtypes).values()
    if isinstance(scalar, type) and issubclass(scalar, numpy.generic)
]
MOVED = [
    *(numpy.dtype(text) for text in ("M8[ns]", "m8[s]", "S8", "U3", "V5", ">f4", ">c16", "g", "G")),
    numpy.dtype([("number", "<i4"), ("text", "S3"), ("matrix", "<f8", (2, 2))]),
    *OF_ML_DTYPES,
    *DTYPES.values(),
]


def moved_arrays(ctx: CiuicContext) -> list[tuple[Any, list[Array]]]:
    """Every dtype of NumPy's kind and of torch's, with what each rank has."""
    size = ctx.world_size
    cases: list[tuple[Any, list[Array]]] = []
    for dtype in MOVED:
        rows = [numpy.arange(size * 3 * dtype.itemsize) * 7 + 11 * r for r in range(size)]
        rows = [x % (2 if dtype.kind == "b" else 128) for x in rows]
        cases.append((dtype, [x.astype("u1").view(dtype).reshape(size, 3) for x in rows]))
    quantized = ("qint8", "quint8", "qint32", "quint4x2", "quint2x4")
    every = sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str)
    for kind in every:
        if str(kind).removeprefix("torch.") in quantized:
            continue
        bytes_of = size * 3 * torch.empty(0, dtype=kind).element_size()
        tensors = [torch.arange(bytes_of) * 7 + 11 * r for r in range(size)]
        tensors = [x % (2 if kind == torch.bool else 128) for x in tensors]
        cases.append((kind, [x.to(torch.uint8).view(kind).reshape(size, 3) for x in tensors]))
    return cases


def same(a: Array, b: Array) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def copy_of(x: Array) -> Array:
    if isinstance(x, torch.Tensor):  # not every dtype has a clone()
        return x.view(torch.uint8).clone().view(x.dtype)
    return x.copy()


def move(ctx: CiuicContext, which: int, arrays: list[Array], root: int) -> None:
    """One of the operations that move, of which every dtype gets some here."""
    rank, size = ctx.rank, ctx.world_size
    own = arrays[rank]
    x = copy_of(own)
    if which == 0:
        gathered = ctx.gather(own, root)
        assert (gathered is not None) == (rank == root)
        for got, wanted in zip(gathered or [], arrays, strict=bool(gathered)):
            assert same(got, wanted)
    elif which == 1:
        ctx.scatter(x, arrays if rank == root else None, root)
        assert same(x, own)
    elif which == 2:
        swapped = ctx.all_to_all(own)
        assert all(same(swapped[other], arrays[other][rank]) for other in range(size))
    elif which == 3:
        parts = ctx.all_gather_v(own[: rank + 1])
        assert all(same(parts[other], arrays[other][: other + 1]) for other in range(size))
    elif which == 4:
        splits = [int(other != rank) for other in range(size)]
        swapped = ctx.all_to_all_v(own[: size - 1], splits, splits)
        sent = [arrays[other][rank - (rank > other)] for other in range(size) if other != rank]
        assert all(same(got, wanted) for got, wanted in zip(swapped, sent, strict=True))
    elif rank == 0:
        ctx.send(own, 1, tag=7)
    elif rank == 1:
        ctx.recv(x, 0, tag=7)
        assert same(x, arrays[0])


def movements(ctx: CiuicContext) -> int:
    size = ctx.world_size
    cases = moved_arrays(ctx)
    for number, (dtype, arrays) in enumerate(cases):
        root = number % size
        x = copy_of(arrays[ctx.rank])
        ctx.broadcast(x, root)
        assert same(x, arrays[root]), f"broadcast of {dtype}"
        for got, wanted in zip(ctx.all_gather(arrays[ctx.rank]), arrays, strict=True):
            assert same(got, wanted), f"all_gather of {dtype}"
        move(ctx, number % 6, arrays, root)
    return len(cases)


def mismatch() -> None:
    """Other bytes for the same numbers are found out, not taken for the same."""
    with CiuicContext(timeout_s=60) as other:
        x = numpy.zeros(4, ">f4" if other.rank == 0 else "<f4")
        try:
            other.all_gather(x)
        except ciuic.MismatchError:
            pass
        else:
            raise AssertionError("big-endian and little-endian float32 are not alike")


def main() -> None:
    global IN_MPI, IN_NCCL
    with CiuicContext(timeout_s=120) as ctx:
        IN_MPI = ctx.backend == "mpi"
        IN_NCCL = ctx.backend == "nccl"
        over_tcp = os.environ.get("CIUIC_TRANSPORT") == "tcp"
        assert ("tcp" in str(ctx.describe()["transports"])) == over_tcp
        pairs = reductions(ctx, in_rank_order=not (over_tcp or IN_MPI or IN_NCCL))
        averages_near_the_largest(ctx)
        dtypes = movements(ctx)
        ctx.barrier()
    if not (IN_MPI or IN_NCCL) or os.environ.get("CIUIC_CHECK") == "1":
        mismatch()
    print(f"all good: {pairs} pairs, {dtypes} dtypes moved", file=sys.stdout)


main()
