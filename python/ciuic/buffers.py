# SPDX-License-Identifier: Apache-2.0
"""Arrays of PyTorch, NumPy and DLPack as what the core takes: address, count, number of the dtype.

Plain arrays (contiguous, on the CPU) are used where they lie. Others are copied to contiguous
memory and, where they are written, copied back when the operation has ended.

An :class:`ArrayKind` knows one library's arrays; none is imported before one of its arrays is met.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ciuic import _native
from ciuic.dtypes import CODE_OF_DTYPE, CODE_OF_NAME, NAME_OF_CODE

Place = tuple[int, int, int]  # address, count, number of the dtype


class ArrayKind(Protocol):
    """What differs between libraries of arrays."""

    name: str

    def check(self, x: Any, writes: bool) -> int:
        """Raises ValueError where ``x`` cannot be taken; gives the number of its dtype."""
        ...

    def count(self, x: Any) -> int: ...

    def shape(self, x: Any) -> tuple[int, ...]: ...

    def is_contiguous(self, x: Any) -> bool: ...

    def address(self, x: Any, writes: bool) -> int: ...

    def empty(self, x: Any, shape: Sequence[int]) -> Any:
        """New contiguous memory of ``x``'s dtype."""
        ...

    def copy(self, target: Any, source: Any) -> None:
        """Copies element by element, whatever the strides; ``target`` has ``source``'s shape."""
        ...

    def rows(self, x: Any) -> list[Any]:
        """The parts ``x[0], x[1], ...`` as arrays over the same memory."""
        ...


def _refuse(what: str, instead: str) -> ValueError:
    return ValueError(f"{what}; {instead}. Nothing was sent.")


def _known_dtypes() -> str:
    return ", ".join(CODE_OF_NAME)


def _overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements may share memory. Strides in any one unit; never says no wrongly."""
    if 0 in shape:
        return False
    axes = sorted((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1)
    reach = 0
    for stride, length in axes:
        if stride <= reach:
            return True
        reach += stride * (length - 1)
    return False


class TorchArrays:
    """PyTorch's tensors."""

    name = "torch"

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        for name in CODE_OF_NAME:
            CODE_OF_DTYPE[getattr(torch, name)] = CODE_OF_NAME[name]

    def check(self, x: Any, writes: bool) -> int:
        dispatch = getattr(type(x), "__torch_dispatch__", None)
        if (
            dispatch is not self._torch._C._disabled_torch_dispatch_impl
            and type(x) is not self._torch.Tensor
        ):
            raise _refuse(
                f"a {type(x).__name__}, which wraps other tensors",
                "give the tensor within, such as x.to_local()",
            )
        if x.layout is not self._torch.strided:
            raise _refuse(f"a tensor of layout {x.layout}", "give a dense one, x.to_dense()")
        if x.device.type != "cpu":
            raise _refuse(
                f"a tensor on {x.device}", "no backend takes such tensors yet, give x.cpu()"
            )
        code = CODE_OF_DTYPE.get(x.dtype)
        if code is None:
            raise _refuse(f"a tensor of {x.dtype}", f"there are {_known_dtypes()}")
        if writes and _overlaps(x.shape, x.stride()):
            raise _refuse(
                "a tensor whose elements share memory (expand(), as_strided()) cannot be written",
                "give x.contiguous() and take the result from it",
            )
        return code

    def count(self, x: Any) -> int:
        return int(x.numel())

    def shape(self, x: Any) -> tuple[int, ...]:
        return tuple(x.shape)

    def is_contiguous(self, x: Any) -> bool:
        return bool(x.is_contiguous()) and not x.is_neg()

    def address(self, x: Any, writes: bool) -> int:
        if writes:
            self._torch._C._increment_version([x])
        return int(x.data_ptr())

    def empty(self, x: Any, shape: Sequence[int]) -> Any:
        return self._torch.empty(tuple(shape), dtype=x.dtype, device=x.device)

    def copy(self, target: Any, source: Any) -> None:
        with self._torch.no_grad():
            target.copy_(source)

    def rows(self, x: Any) -> list[Any]:
        return list(x.unbind(0))


class NumpyArrays:
    """NumPy's arrays, and views of DLPack's as such (then ``codes`` says what they really hold)."""

    name = "numpy"

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy
        for name in CODE_OF_NAME:
            if name != "bfloat16":
                CODE_OF_DTYPE[numpy.dtype(name)] = CODE_OF_NAME[name]

    def check(self, x: Any, writes: bool) -> int:
        if type(x).__name__ == "MaskedArray":
            raise _refuse("a masked array", "give x.filled(0) or x.data")
        code = CODE_OF_DTYPE.get(x.dtype)
        if code is None and x.dtype.name == "bfloat16" and x.dtype.itemsize == 2:
            code = CODE_OF_DTYPE[x.dtype] = CODE_OF_NAME["bfloat16"]  # of ml_dtypes
        if code is None:
            if x.dtype.newbyteorder("=") in CODE_OF_DTYPE:
                raise _refuse(
                    f"an array of foreign byte order ({x.dtype.str})",
                    "give x.astype(x.dtype.newbyteorder('='))",
                )
            raise _refuse(f"an array of {x.dtype}", f"there are {_known_dtypes()}")
        if writes:
            if not x.flags.writeable:
                raise _refuse("a read-only array cannot be written", "give x.copy()")
            if _overlaps(x.shape, x.strides):
                raise _refuse(
                    "an array whose elements share memory (broadcast_to()) cannot be written",
                    "give x.copy()",
                )
        return code

    def count(self, x: Any) -> int:
        return int(x.size)

    def shape(self, x: Any) -> tuple[int, ...]:
        return tuple(x.shape)

    def is_contiguous(self, x: Any) -> bool:
        return bool(x.flags.c_contiguous) and bool(x.flags.aligned)

    def address(self, x: Any, writes: bool) -> int:
        return _address_of(x, writes)

    def empty(self, x: Any, shape: Sequence[int]) -> Any:
        return self._numpy.empty(tuple(shape), dtype=x.dtype)

    def copy(self, target: Any, source: Any) -> None:
        self._numpy.copyto(target, source)

    def rows(self, x: Any) -> list[Any]:
        return [x[i, ...] for i in range(x.shape[0])]


def _address_of(x: Any, writes: bool) -> int:
    if x.dtype.kind == "V":  # ml_dtypes: no letter in the buffer protocol
        import numpy

        x = x.view(numpy.uint16)
    return _native.address_of(x, writes)


class DlpackArrays(NumpyArrays):
    """Views of DLPack arrays, as unsigned integers of their width."""

    name = "dlpack"

    def __init__(self, numpy: Any, code: int) -> None:
        super().__init__(numpy)
        self._code = code

    def check(self, x: Any, writes: bool) -> int:
        if writes and _overlaps(x.shape, x.strides):
            raise _refuse("an array whose elements share memory cannot be written", "copy it")
        return self._code


class Buffer:
    """One array at rest: where its bytes are while an operation uses them.

    Attributes:
        array: What the caller gave, or the view of it that is worked on.
        kind: Whose array it is.
        code: Number of its dtype.
    """

    __slots__ = ("_contiguous", "array", "code", "kind", "writes")

    def __init__(self, x: Any, writes: bool) -> None:
        self.array, self.kind = _array_and_kind(x, writes)
        self.code = self.kind.check(self.array, writes)
        self.writes = writes
        self._contiguous: Any = None

    @property
    def count(self) -> int:
        return self.kind.count(self.array)

    @property
    def dtype(self) -> str:
        return NAME_OF_CODE[self.code]

    @property
    def is_copy(self) -> bool:
        """Whether :meth:`place` gave memory other than the caller's."""
        return self._contiguous is not None

    def place(self, reads: bool = True) -> Place:
        """Address, count and dtype, of contiguous memory. ``reads``: its values matter."""
        kind = self.kind
        array = self.array
        if not kind.is_contiguous(array):
            self._contiguous = kind.empty(array, kind.shape(array))
            if reads:
                kind.copy(self._contiguous, array)
            array = self._contiguous
        return kind.address(array, self.writes), self.count, self.code

    def finish(self) -> None:
        """Copies the result back, where the operation wrote to a copy."""
        if self._contiguous is not None and self.writes:
            self.kind.copy(self.array, self._contiguous)
            self._contiguous = None

    def empty(self, shape: Sequence[int]) -> Any:
        """A new array of this kind and dtype."""
        return self.kind.empty(self.array, shape)


_kind_of_type: dict[type, ArrayKind] = {}
_torch_arrays: TorchArrays | None = None
_numpy_arrays: NumpyArrays | None = None


def torch_arrays() -> TorchArrays | None:
    """PyTorch's, where the user's program has imported it."""
    global _torch_arrays
    if _torch_arrays is None:
        torch = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "Tensor"):
            _torch_arrays = TorchArrays(torch)
    return _torch_arrays


def numpy_arrays() -> NumpyArrays | None:
    """NumPy's, where the user's program has imported it."""
    global _numpy_arrays
    if _numpy_arrays is None:
        numpy = sys.modules.get("numpy")
        if numpy is not None and hasattr(numpy, "ndarray"):
            _numpy_arrays = NumpyArrays(numpy)
    return _numpy_arrays


def is_array(x: Any) -> bool:
    """Whether ``x`` is one array, not an iterable of them."""
    return type(x) in _kind_of_type or hasattr(x, "__dlpack__") or _find_kind(x) is not None


def parameters_among(arrays: Sequence[Any]) -> int:
    """How many of them are parameters of a torch module."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return 0
    plain, parameter = torch.Tensor, torch.nn.Parameter  # isinstance alone takes a microsecond
    return sum([type(x) is not plain and isinstance(x, parameter) for x in arrays])


def _find_kind(x: Any) -> ArrayKind | None:
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "Tensor") and isinstance(x, torch.Tensor):
        return torch_arrays()
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "ndarray") and isinstance(x, numpy.ndarray):
        return numpy_arrays()
    return None


def _array_and_kind(x: Any, writes: bool) -> tuple[Any, ArrayKind]:
    kind = _kind_of_type.get(type(x))
    if kind is not None:
        return x, kind
    kind = _find_kind(x)
    if kind is not None:
        _kind_of_type[type(x)] = kind
        _enter_direct_path(type(x))
        return x, kind
    if not hasattr(x, "__dlpack__"):
        raise _refuse(
            f"{type(x).__name__} is no array", "give a tensor, a NumPy array or one with DLPack"
        )
    return _dlpack_array(x, writes)


def _dlpack_array(x: Any, writes: bool) -> tuple[Any, ArrayKind]:
    import numpy

    view, code, on_cpu, writable = _native.dlpack_view(x)
    if not on_cpu:
        raise _refuse(
            f"an array ({type(x).__name__}) that is not on the CPU",
            "no backend takes such arrays yet",
        )
    if code is None:
        raise _refuse(
            f"an array ({type(x).__name__}) of this dtype", f"there are {_known_dtypes()}"
        )
    if writes and not writable:
        raise _refuse("a read-only array cannot be written", "give a copy")
    return view, DlpackArrays(numpy, code)


# ---- the direct path: plain tensors and arrays, without a Buffer object ----

direct_place: dict[type, Callable[[Any], Place | None]] = {}
"""For a type, the function that gives the place of a plain array that is written, or None."""


def _enter_direct_path(array_type: type) -> None:
    torch = sys.modules.get("torch")
    numpy = sys.modules.get("numpy")
    if torch is not None and array_type is torch.Tensor:
        direct_place[array_type] = _direct_torch(torch)
    elif numpy is not None and array_type is numpy.ndarray:
        direct_place[array_type] = _direct_numpy


def _direct_torch(torch: Any) -> Callable[[Any], Place | None]:
    increment_version = torch._C._increment_version
    code_of = CODE_OF_DTYPE.get

    def place(x: Any) -> Place | None:
        code = code_of(x.dtype)
        if code is None or not x.is_cpu or not x.is_contiguous() or x.is_neg():
            return None
        increment_version((x,))  # so that autograd sees that the values changed
        return x.data_ptr(), x.numel(), code

    return place


def _direct_numpy(
    x: Any,
    code_of: Callable[[Any], int | None] = CODE_OF_DTYPE.get,
    address_of: Callable[[Any, bool], int] = _native.address_of,
) -> Place | None:
    code = code_of(x.dtype)
    if code is None:
        return None
    try:
        return address_of(x, True), x.size, code
    except (BufferError, ValueError):
        return None
