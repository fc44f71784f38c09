# SPDX-License-Identifier: Apache-2.0
"""Arrays to test with: NumPy's, where it is there and has the dtype, else plain memory.

:class:`Memory` is an array of any dtype over a ``bytearray``. It is taught to :mod:`ciuic.buffers`
like NumPy's and PyTorch's arrays, so every function of the package takes it, and an installation
without either can be tested whole.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from ciuic import _native, buffers
from ciuic.dtypes import CODE_OF_NAME, SIZE_OF_CODE

_OF_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


class Memory:
    """Contiguous memory with a dtype and one or two dimensions.

    Attributes:
        view: Its bytes.
        dtype: Name of the dtype.
        shape: Lengths.
    """

    __slots__ = ("dtype", "shape", "view")

    def __init__(self, view: memoryview, dtype: str, shape: Sequence[int]) -> None:
        self.view = view
        self.dtype = dtype
        self.shape = tuple(shape)

    @property
    def row_bytes(self) -> int:
        """Of one step along the first dimension."""
        return (self.shape[1] if len(self.shape) > 1 else 1) * itemsize(self.dtype)

    def __getitem__(self, rows: slice) -> Memory:
        """Rows of it, over the same memory."""
        begin, end, _ = rows.indices(self.shape[0])
        part = self.view[begin * self.row_bytes : max(begin, end) * self.row_bytes]
        return Memory(part, self.dtype, (max(0, end - begin), *self.shape[1:]))


class _MemoryArrays:
    """What :class:`ciuic.array_kind.ArrayKind` asks for."""

    name = "memory"

    def check(self, x: Memory, writes: bool) -> int | None:
        return CODE_OF_NAME[x.dtype]

    def device(self, x: Memory) -> int:
        return -1

    def count(self, x: Memory) -> int:
        return len(x.view) // itemsize(x.dtype)

    def itemsize(self, x: Memory) -> int:
        return itemsize(x.dtype)

    def shape(self, x: Memory) -> tuple[int, ...]:
        return x.shape

    def is_contiguous(self, x: Memory) -> bool:
        return True

    def address(self, x: Memory, writes: bool) -> int:
        return _native.address_of(x.view, writes)

    def empty(self, x: Memory, shape: Sequence[int]) -> Memory:
        return _new(x.dtype, shape)

    def copy(self, target: Memory, source: Memory) -> None:
        target.view[:] = source.view

    def rows(self, x: Memory) -> list[Memory]:
        return [Memory(x[i : i + 1].view, x.dtype, x.shape[1:]) for i in range(x.shape[0])]


def itemsize(dtype: str) -> int:
    """Bytes of an element."""
    return SIZE_OF_CODE[CODE_OF_NAME[dtype]]


def _new(dtype: str, shape: Sequence[int]) -> Memory:
    count = 1
    for length in shape:
        count *= length
    return Memory(memoryview(bytearray(count * itemsize(dtype))), dtype, shape)


class Maker:
    """Makes arrays of bytes, and bytes of arrays.

    Attributes:
        numpy_dtypes: Names of the dtypes whose arrays are NumPy's.
        described: Whose arrays they are, in words.
    """

    def __init__(self) -> None:
        buffers.enter_kind(Memory, _MemoryArrays())
        self._numpy = _import("numpy")
        ml_dtypes = _import("ml_dtypes") if self._numpy is not None else None
        self._dtypes: dict[str, Any] = {}
        for name in CODE_OF_NAME if self._numpy is not None else ():
            if name not in _OF_ML_DTYPES:
                self._dtypes[name] = self._numpy.dtype(name)
            elif ml_dtypes is not None and hasattr(ml_dtypes, name):
                self._dtypes[name] = self._numpy.dtype(getattr(ml_dtypes, name))
        self.numpy_dtypes = list(self._dtypes)
        self.described = self._describe(ml_dtypes)

    def array(self, data: bytes, dtype: str, shape: Sequence[int] | None = None) -> Any:
        """A new array with these bytes; of one dimension, where no shape is given."""
        if shape is None:
            shape = (len(data) // itemsize(dtype),)
        numpy_dtype = self._dtypes.get(dtype)
        if numpy_dtype is None:
            return Memory(memoryview(bytearray(data)), dtype, shape)
        return self._numpy.frombuffer(bytearray(data), dtype=numpy_dtype).reshape(tuple(shape))

    def empty(self, count: int, dtype: str) -> Any:
        """An array to be overwritten: its bytes are such that this shows."""
        return self.array(b"\xa5" * (count * itemsize(dtype)), dtype)

    @staticmethod
    def overwrite(x: Any, data: bytes) -> None:
        """Gives an array of one dimension other bytes."""
        view = x.view if isinstance(x, Memory) else x.view("uint8")
        view[:] = memoryview(data)

    @staticmethod
    def data(x: Any) -> bytes:
        """The bytes of an array."""
        return bytes(x.view) if isinstance(x, Memory) else bytes(x.tobytes())

    def _describe(self, ml_dtypes: Any) -> str:
        if self._numpy is None:
            return f"plain memory ({len(CODE_OF_NAME)} dtypes; NumPy is not installed)"
        words = f"NumPy {self._numpy.__version__}"
        if ml_dtypes is not None:
            words += f" and ml_dtypes {ml_dtypes.__version__}"
        left = [name for name in CODE_OF_NAME if name not in self._dtypes]
        words += f" ({len(self._dtypes)} dtypes)"
        return words + (f", plain memory ({', '.join(left)})" if left else "")


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
