# SPDX-License-Identifier: Apache-2.0
"""Elements of each dtype as Python's numbers, and back, by nothing but the standard library.

Rounding is to the nearest, ties to even; what is too large becomes an infinity, or a NaN where the
dtype has none; every NaN becomes the canonical one: as the core's kernels do.
"""

from __future__ import annotations

import bisect
import functools
import math
import struct
from collections.abc import Sequence
from ctypes import c_float
from typing import Any

Number = Any
"""int, bool, float or complex."""

INTEGERS = {
    "int8": (1, True),
    "int16": (2, True),
    "int32": (4, True),
    "int64": (8, True),
    "uint8": (1, False),
    "uint16": (2, False),
    "uint32": (4, False),
    "uint64": (8, False),
}
"""Bytes, and whether they have a sign."""

SMALL_FLOATS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Those that are computed in float32."""

COMPLEX = ("complex64", "complex128")
FLOATS = ("float32", "float64", *SMALL_FLOATS)

_LETTERS = {(1, True): "b", (2, True): "h", (4, True): "i", (8, True): "q"}
_EIGHT_BITS = {  # bits of the mantissa, bias, the canonical NaN, what follows the largest number
    "float8_e4m3fn": (3, 7, 0x7F, 0x7F),
    "float8_e5m2": (2, 15, 0x7E, 0x7C),
}


def float32(value: float) -> float:
    """``value``, rounded to float32."""
    return c_float(value).value


def decode(data: bytes, dtype: str) -> list[Number]:
    """The elements of which ``data`` is made."""
    if dtype in INTEGERS:
        return _struct(data, _integer_letter(dtype))
    if dtype == "bool":
        return [byte != 0 for byte in data]
    if dtype == "bfloat16":
        return [_from_bits(bits << 16) for bits in _struct(data, "H")]
    if dtype in _EIGHT_BITS:
        return [_numbers_of(dtype)[byte] for byte in data]
    letter = {"float32": "f", "complex64": "f", "float16": "e"}.get(dtype, "d")
    numbers = _struct(data, letter)
    if dtype in COMPLEX:
        return [complex(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]
    return numbers


def encode(values: Sequence[Number], dtype: str) -> bytes:
    """The bytes of an array that holds ``values``. Integers wrap."""
    if dtype in INTEGERS:
        size, signed = INTEGERS[dtype]
        wrapped = [wrap(value, size, signed) for value in values]
        return struct.pack(f"={len(wrapped)}{_integer_letter(dtype)}", *wrapped)
    if dtype == "bool":
        return bytes(bool(value) for value in values)
    if dtype in COMPLEX:
        parts = [part for value in values for part in (value.real, value.imag)]
        return encode(parts, "float32" if dtype == "complex64" else "float64")
    one = {
        "float32": _float32_bytes,
        "float64": _float64_bytes,
        "float16": _float16_bytes,
        "bfloat16": _bfloat16_bytes,
    }.get(dtype) or functools.partial(_float8_bytes, dtype)
    return b"".join([one(value) for value in values])


def wrap(value: int, size: int, signed: bool) -> int:
    """``value`` in an integer of ``size`` bytes."""
    bits = 8 * size
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def _integer_letter(dtype: str) -> str:
    size, signed = INTEGERS[dtype]
    letter = _LETTERS[size, True]
    return letter if signed else letter.upper()


def _struct(data: bytes, letter: str) -> list[Number]:
    return list(struct.unpack(f"={len(data) // struct.calcsize('=' + letter)}{letter}", data))


def _from_bits(bits: int) -> float:
    return float(struct.unpack("=f", struct.pack("=I", bits))[0])


def _float64_bytes(value: float) -> bytes:
    return struct.pack("=d", math.nan if value != value else value)


def _float32_bytes(value: float) -> bytes:
    return struct.pack("=f", math.nan if value != value else float32(value))


def _float16_bytes(value: float) -> bytes:
    try:
        return struct.pack("=e", math.nan if value != value else float32(value))
    except OverflowError:
        return struct.pack("=e", math.copysign(math.inf, value))


def _bfloat16_bytes(value: float) -> bytes:
    bits: int = struct.unpack("=I", _float32_bytes(value))[0]
    if value != value:
        return struct.pack("=H", 0x7FC0)
    return struct.pack("=H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def _float8_bytes(dtype: str, value: float) -> bytes:
    _, _, nan, overflow = _EIGHT_BITS[dtype]
    if value != value:
        return bytes([nan])
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    magnitude = abs(float32(value))
    # The magnitudes in order; the one after the largest is where rounding leads beyond it.
    numbers = _magnitudes_of(dtype)
    code = bisect.bisect_left(numbers, magnitude)
    if code > 0 and code < len(numbers) and numbers[code] != magnitude:
        below, above = magnitude - numbers[code - 1], numbers[code] - magnitude
        if below < above or (below == above and (code - 1) % 2 == 0):
            code -= 1
    code = min(code, overflow)
    return bytes([nan if code == nan else sign | code])


@functools.cache
def _magnitudes_of(dtype: str) -> list[float]:
    mantissa_bits, bias, _, overflow = _EIGHT_BITS[dtype]

    def number(code: int) -> float:
        exponent, mantissa = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
        if exponent == 0:
            return math.ldexp(mantissa, 1 - bias - mantissa_bits)
        return math.ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits)

    return [number(code) for code in range(overflow + 1)]


@functools.cache
def _numbers_of(dtype: str) -> list[float]:
    """By their byte."""
    _, _, nan, overflow = _EIGHT_BITS[dtype]
    numbers = _magnitudes_of(dtype)[:overflow]
    numbers += [math.inf] if overflow != nan else []
    numbers += [math.nan] * (128 - len(numbers))
    return numbers + [-number for number in numbers]
