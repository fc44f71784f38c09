# SPDX-License-Identifier: Apache-2.0
"""Values for scripted ranks: the inputs of any rank, arrays of any layout, reductions by NumPy."""

import math
import zlib

import ml_dtypes
import numpy

Shape = tuple[int, ...]


def dtype_named(name: str) -> numpy.dtype:
    return numpy.dtype(getattr(ml_dtypes, name, name))


def _random(*seed: object) -> numpy.random.Generator:
    return numpy.random.default_rng(zlib.crc32(repr(seed).encode()))


def any_bits(seed: object, shape: Shape, dtype: numpy.dtype) -> numpy.ndarray:
    """Any values at all, NaNs among them."""
    data = _random(seed).bytes(math.prod(shape) * dtype.itemsize)
    if dtype.kind == "b":
        return (numpy.frombuffer(data, dtype=numpy.uint8) % 2 == 1).reshape(shape)
    return numpy.frombuffer(data, dtype=dtype).reshape(shape)


def small(seed: object, shape: Shape, dtype: numpy.dtype) -> numpy.ndarray:
    """Whole numbers whose sums and products any float has exactly; large integers, which wrap."""
    random = _random(seed)
    if dtype.kind in "iu":
        limits = numpy.iinfo(dtype)
        return random.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    values = random.integers(0, 2, shape)
    if dtype.kind == "c":
        return (values + 1j * random.integers(0, 2, shape)).astype(dtype)
    return values.astype(dtype)


def laid_out(shape: Shape, dtype: numpy.dtype, layout: int) -> numpy.ndarray:
    """A new array with strides of some kind; 0 is contiguous."""
    if layout == 1:
        return numpy.zeros((*shape[:-1], 3 * shape[-1]), dtype=dtype)[..., 1::3]
    if layout == 2:
        return numpy.zeros(shape[::-1], dtype=dtype).T
    if layout == 3:
        return numpy.zeros(shape, dtype=dtype)[::-1]
    if layout == 4:
        return numpy.zeros((5 + shape[0], *shape[1:]), dtype=dtype)[5:]
    return numpy.zeros(shape, dtype=dtype)


def reduced(op: str, arrays: list[numpy.ndarray]) -> numpy.ndarray:
    """The exact result, in the arrays' dtype; of AVG in a wider one."""
    dtype = arrays[0].dtype
    if dtype.kind == "b":
        return _reduced_bools(op, arrays)
    bits = {"BAND": numpy.bitwise_and, "BOR": numpy.bitwise_or, "BXOR": numpy.bitwise_xor}
    if op in bits:
        return bits[op].reduce(arrays)
    if dtype.kind in "iu":
        exact = numpy.stack(arrays)
    else:
        exact = numpy.stack([x.astype("c16" if dtype.kind == "c" else "f8") for x in arrays])
    if op in ("MIN", "MAX"):
        return (exact.min if op == "MIN" else exact.max)(axis=0).astype(dtype)
    if op == "PRODUCT":
        return exact.prod(axis=0, dtype=exact.dtype).astype(dtype)
    total = exact.sum(axis=0, dtype=exact.dtype)
    if op == "SUM":
        return total.astype(dtype)
    if dtype.kind not in "iu":
        return total / len(arrays)
    size = dtype.type(len(arrays))
    quotient = total // size  # rounds down, and AVG toward zero
    return quotient + ((total < 0) & (quotient * size != total)).astype(dtype)


def _reduced_bools(op: str, arrays: list[numpy.ndarray]) -> numpy.ndarray:
    function = {
        "SUM": numpy.logical_or,
        "MAX": numpy.logical_or,
        "BOR": numpy.logical_or,
        "PRODUCT": numpy.logical_and,
        "MIN": numpy.logical_and,
        "BAND": numpy.logical_and,
        "BXOR": numpy.logical_xor,
    }[op]
    return function.reduce(arrays)


def same(what: str, got: numpy.ndarray, expected: numpy.ndarray) -> None:
    """Alike in shape, dtype and bits."""
    assert got.dtype == expected.dtype, f"{what}: {got.dtype} is not {expected.dtype}"
    assert got.shape == expected.shape, f"{what}: {got.shape} is not {expected.shape}"
    if got.tobytes() == expected.tobytes():
        return
    item = f"V{got.dtype.itemsize}"
    there = numpy.ascontiguousarray(got).view(item) != numpy.ascontiguousarray(expected).view(item)
    place = int(numpy.argmax(there.reshape(-1)))
    raise AssertionError(
        f"{what}: {int(there.sum())} of {got.size} elements differ, the first at {place}: "
        f"{got.reshape(-1)[place]} is not {expected.reshape(-1)[place]}"
    )


def same_reduction(what: str, op: str, got: numpy.ndarray, expected: numpy.ndarray) -> None:
    """Alike, but for the sign of a zero; averages of floats nearly."""
    if got.dtype.kind in "iub":
        return same(what, got, expected)
    epsilon = {1: 2.0**-2, 2: 2.0**-7, 4: 2.0**-23, 8: 2.0**-52}
    part = got.dtype.itemsize // (2 if got.dtype.kind == "c" else 1)
    wide, right = (x.astype("c16" if x.dtype.kind == "c" else "f8") for x in (got, expected))
    allowed = 6 * epsilon[part] * numpy.abs(right) if op == "AVG" else 0.0
    assert got.shape == expected.shape, f"{what}: {got.shape} is not {expected.shape}"
    bad = ~(numpy.abs(wide - right) <= allowed)
    assert not bad.any(), f"{what}: {wide[bad][:3]} is not {right[bad][:3]}"
