# SPDX-License-Identifier: Apache-2.0
"""Element types and reduction operations, numbered as in include/ciuic/dtype.h.

``ciuic`` imports neither NumPy nor PyTorch. The dtypes of each are entered into
:data:`CODE_OF_DTYPE` when its first array is met.
"""

from __future__ import annotations

import enum
from typing import Any

from ciuic import _native
from ciuic.errors import InvalidArgumentError, UnsupportedError


class ReduceOp(enum.IntEnum):
    """How the ranks' elements become one. ``SUM`` is not divided by the world size, ``AVG`` is.

    Integers are added and multiplied in their own dtype and wrap around, also before ``AVG``
    divides them, which truncates toward zero: the ``AVG`` of uint8 200 and 200 is 72. ``AVG`` of
    floats does not overflow where the average does not. ``BAND``, ``BOR`` and ``BXOR`` are of the
    bits of integers, and of truth values. docs/dtypes.md says which dtype has which.
    """

    SUM = 0
    AVG = 1
    MIN = 2
    MAX = 3
    PRODUCT = 4
    BAND = 5
    BOR = 6
    BXOR = 7


CODE_OF_NAME: dict[str, int] = dict(_native.dtype_codes)
NAME_OF_CODE: dict[int, str] = {code: name for name, code in CODE_OF_NAME.items()}
SIZE_OF_CODE: dict[int, int] = dict(_native.dtype_sizes)

# The core is told an array's dtype and device as one number: that of the dtype, plus this much
# times one more than the number of the GPU. On the CPU it is that of the dtype alone.
PER_DEVICE = 256

# dtype objects of NumPy and PyTorch, native byte order only.
CODE_OF_DTYPE: dict[Any, int] = {}


def names() -> list[str]:
    """Names of the element types that can be reduced. Those that are only moved may be others."""
    return list(CODE_OF_NAME)


def dtype_in(number: int) -> int:
    """The number of the dtype alone."""
    return number % PER_DEVICE


def device_in(number: int) -> int:
    """The number of the GPU; -1 on the CPU."""
    return number // PER_DEVICE - 1


def op_code(op: ReduceOp | int) -> int:
    """Checks ``op`` and gives its number.

    Raises:
        ValueError: Not a ReduceOp.
    """
    try:
        return int(ReduceOp(op))
    except (ValueError, TypeError):
        names = ", ".join(f"CiuicContext.{name.upper()}" for name in _native.op_codes)
        raise InvalidArgumentError(
            f"op={op!r} is no reduction operation; there are {names}"
        ) from None


def check_reducible(code: int, op: int) -> None:
    """Raises ValueError where ``op`` is not defined for the dtype, and says which are."""
    code = dtype_in(code)
    if not _native.is_reducible(code, op):
        raise UnsupportedError(f"{_native.undefined_pair(code, op)}. Nothing was sent.")
