# SPDX-License-Identifier: Apache-2.0
"""What the ranks give, and the right results. Every rank can work out both for all ranks.

What is reduced repeats after :data:`PERIOD` elements, so that plain Python is fast enough for large
arrays. It is a prime: whatever lands in a wrong place, a power of two elements away, is seen. What
is only moved is random bytes, which do not repeat.

Results are known to the bit. Two ranks get numbers of which the result is rounded, which is done
once; where there are more, where it is rounded depends on the algorithm, and they get numbers whose
sums and products are exact in every order. Infinities, NaNs and zeros of both signs are among them.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence

from ciuic.selftest.elements import (
    COMPLEX,
    INTEGERS,
    SMALL_FLOATS,
    Number,
    decode,
    encode,
    float32,
    wrap,
)

PERIOD = 97

_EXACT = (-2.0, -1.0, 1.0, 2.0)  # sums and products of four take three bits, as float8_e5m2 has
_EXACT_COMPLEX = 2 + 1j  # none of its powers has a part that is 0, whose sign would be in doubt
_SPECIAL = (math.inf, -math.inf, math.nan, 0.0, -0.0)
_SPECIALS = 11  # each so many elements


def reduced_input(dtype: str, rank: int, ranks: int, begin: int, count: int) -> bytes:
    """Elements ``begin`` to ``begin + count`` of what ``rank`` of ``ranks`` gives."""
    return _repeated(_pattern(dtype, rank, ranks), begin, count)


def reduced(dtype: str, op: str, ranks: int, begin: int, count: int) -> bytes:
    """The same elements of the result."""
    return _repeated(_result(dtype, op, ranks), begin, count)


@functools.lru_cache(maxsize=64)
def moved(dtype: str, sender: int, receiver: int, nbytes: int) -> bytes:
    """What ``sender`` has for ``receiver``; for all of them, where that is -1."""
    data = random.Random(1000 * sender + receiver + 1).randbytes(nbytes)
    return bytes(byte & 1 for byte in data) if dtype == "bool" else data


def fold(dtype: str, op: str, values: Sequence[Number]) -> Number:
    """One element of the result, of those of the ranks in order; not yet rounded to ``dtype``."""
    if dtype == "bool":
        return _fold_bools(op, values)
    if dtype in INTEGERS:
        return _fold_integers(dtype, op, values)
    if op in ("min", "max"):
        return _extreme(values, larger=op == "max")
    rounded: Callable[[Number], Number] = {"float64": _same, "complex128": _same}.get(
        dtype, _rounded
    )
    result = values[0] if op != "avg" else _scaled(dtype, values[0], len(values))
    for value in values[1:]:
        if op == "product" and dtype in COMPLEX:
            result = _complex_product(result, value, rounded)
        elif op == "product":
            result = rounded(result * value)
        else:
            result = rounded(
                result + (_scaled(dtype, value, len(values)) if op == "avg" else value)
            )
    return result if op != "avg" else _finished(dtype, result, len(values), rounded)


def first_difference(got: bytes, expected: bytes, dtype: str) -> str:
    """What is wrong, or nothing: "element 5 of 9 is 1.0, not 2.0; 3 differ"."""
    if got == expected:
        return ""
    if len(got) != len(expected):
        return f"{len(got)} bytes came, not {len(expected)}"
    size = element_bytes(dtype)
    wrong = [
        at for at in range(0, len(got), size) if got[at : at + size] != expected[at : at + size]
    ]
    at = wrong[0]
    came, right = (data[at : at + size] for data in (got, expected))
    return (
        f"element {at // size} of {len(got) // size} is {_said(came, dtype)}, "
        f"not {_said(right, dtype)}; {len(wrong)} differ"
    )


def element_bytes(dtype: str) -> int:
    return len(encode([0], dtype))


def _said(data: bytes, dtype: str) -> str:
    return f"{decode(data, dtype)[0]!r} (0x{data[::-1].hex()})"


def _repeated(pattern: bytes, begin: int, count: int) -> bytes:
    size = len(pattern) // PERIOD
    first = begin % PERIOD * size
    times = (first + count * size) // len(pattern) + 1
    return (pattern * times)[first : first + count * size]


@functools.cache
def _pattern(dtype: str, rank: int, ranks: int) -> bytes:
    chance = random.Random(f"{dtype} {rank} {ranks}")
    if dtype in INTEGERS:
        return chance.randbytes(PERIOD * element_bytes(dtype))
    if dtype == "bool":  # any byte but 0 is true
        truths = (0, 0, 1, 255 if ranks > 1 else 1)  # which one rank alone copies as it is
        return bytes(chance.choice(truths) for _ in range(PERIOD))
    values: list[Number]
    if dtype in COMPLEX:
        one = _rough_complex if ranks <= 2 else _exact_complex
        return encode([one(chance) for _ in range(PERIOD)], dtype)
    values = [_rough(chance) if ranks <= 2 else chance.choice(_EXACT) for _ in range(PERIOD)]
    for at in range(rank, PERIOD, _SPECIALS):
        values[at] = chance.choice(_SPECIAL)
    return encode(values, dtype)


def _rough(chance: random.Random) -> float:
    return chance.uniform(-2.0, 2.0) * 2.0 ** chance.randint(-8, 8)


def _rough_complex(chance: random.Random) -> complex:
    return complex(_rough(chance), _rough(chance))


def _exact_complex(chance: random.Random) -> complex:
    return chance.choice(_EXACT) * _EXACT_COMPLEX


@functools.cache
def _result(dtype: str, op: str, ranks: int) -> bytes:
    every = [decode(_pattern(dtype, rank, ranks), dtype) for rank in range(ranks)]
    return encode([fold(dtype, op, values) for values in zip(*every, strict=True)], dtype)


def _same(value: Number) -> Number:
    return value


def _rounded(value: Number) -> Number:
    if isinstance(value, complex):
        return complex(float32(value.real), float32(value.imag))
    return float32(value)


def _fold_bools(op: str, values: Sequence[Number]) -> Number:
    if op in ("sum", "max", "bor"):
        return any(values)
    if op in ("product", "min", "band"):
        return all(values)
    return sum(values) % 2 == 1


def _fold_integers(dtype: str, op: str, values: Sequence[Number]) -> Number:
    if op in ("min", "max"):
        return min(values) if op == "min" else max(values)
    if op in ("sum", "avg"):
        total = wrap(sum(values), *INTEGERS[dtype])
        if op == "sum":
            return total
        return abs(total) // len(values) * (-1 if total < 0 else 1)
    result = values[0]
    for value in values[1:]:
        if op == "product":
            result *= value
        elif op == "band":
            result &= value
        elif op == "bor":
            result |= value
        else:
            result ^= value
    return wrap(result, *INTEGERS[dtype])


def _extreme(values: Sequence[Number], *, larger: bool) -> Number:
    """IEEE 754-2019 minimum and maximum: a NaN wins, and -0 is less than +0."""
    if any(value != value for value in values):
        return math.nan
    pairs = [(value, math.copysign(1.0, value)) for value in values]
    return (max(pairs) if larger else min(pairs))[0]


def _power(ranks: int) -> float:
    return float(1 << (ranks - 1).bit_length())


def _scaled(dtype: str, value: Number, ranks: int) -> Number:
    """An operand of an average, as it is read."""
    if dtype in SMALL_FLOATS:
        return float32(value * float32(1.0 / ranks))
    if isinstance(value, complex):  # each part by itself: Python's product would add the zeros
        return complex(value.real / _power(ranks), value.imag / _power(ranks))
    return value / _power(ranks)


def _finished(dtype: str, total: Number, ranks: int, rounded: Callable[[Number], Number]) -> Number:
    if dtype in SMALL_FLOATS:
        return total
    factor = rounded(_power(ranks) / ranks)
    if isinstance(total, complex):
        return rounded(complex(total.real * factor, total.imag * factor))
    return rounded(total * factor)


def _complex_product(a: complex, b: complex, rounded: Callable[[Number], Number]) -> complex:
    """By the school's formula, each step rounded."""
    real = rounded(rounded(a.real * b.real) - rounded(a.imag * b.imag))
    imaginary = rounded(rounded(a.real * b.imag) + rounded(a.imag * b.real))
    return complex(real, imaginary)
