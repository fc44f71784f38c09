# SPDX-License-Identifier: Apache-2.0
"""Arrays of PyTorch, NumPy and DLPack as what the core takes: address, count, dtype and device.

Plain arrays (contiguous, on the CPU or a CUDA device) are used where they lie. Others are copied to
contiguous memory and, where they are written, copied back when the operation has ended.

Operations that only move data take any dtype of a fixed size (``Buffer(x, ..., moves=True)``): what
the core cannot reduce travels as bytes.

An :class:`ArrayKind` knows one library's arrays; none is imported before one of its arrays is met.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ciuic import _native
from ciuic.array_kind import ArrayKind, refuse
from ciuic.cuda_arrays import CudaArrays
from ciuic.dtypes import CODE_OF_DTYPE, CODE_OF_NAME, NAME_OF_CODE, PER_DEVICE, SIZE_OF_CODE
from ciuic.errors import InvalidArgumentError

_DLPACK_CUDA = 2
_DLPACK_CPU = (1, 3)  # the latter pinned, for CUDA

Place = tuple[int, int, int]  # address, count, number of dtype and device (ciuic.dtypes)

_BYTE = CODE_OF_NAME["uint8"]
_OF_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")  # not NumPy's own


def _not_reducible(dtype: Any) -> InvalidArgumentError:
    newbyteorder = getattr(dtype, "newbyteorder", None)
    if newbyteorder is not None and newbyteorder("=") in CODE_OF_DTYPE:
        return refuse(
            f"an array of foreign byte order ({dtype.str}) cannot be reduced",
            "give x.astype(x.dtype.newbyteorder('='))",
        )
    return refuse(
        f"elements of {dtype} cannot be reduced, only moved",
        f"there are reductions of {', '.join(CODE_OF_NAME)}",
    )


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
            if hasattr(torch, name):  # uint16, uint32, uint64 and float8 came with later versions
                CODE_OF_DTYPE[getattr(torch, name)] = CODE_OF_NAME[name]
        # They have no code that copies them.
        self._copied_as_bytes = {
            getattr(torch, f"{kind}{bits}", None)
            for kind in ("int", "uint")
            for bits in range(1, 8)
        }

    def check(self, x: Any, writes: bool) -> int | None:
        dispatch = getattr(type(x), "__torch_dispatch__", None)
        if (
            dispatch is not self._torch._C._disabled_torch_dispatch_impl
            and type(x) is not self._torch.Tensor
        ):
            raise refuse(
                f"a {type(x).__name__}, which wraps other tensors",
                "give the tensor within, such as x.to_local()",
            )
        if x.layout is not self._torch.strided:
            raise refuse(f"a tensor of layout {x.layout}", "give a dense one, x.to_dense()")
        if x.device.type not in ("cpu", "cuda"):
            raise refuse(f"a tensor on {x.device}", "there are CPU and CUDA tensors, give x.cpu()")
        if x.is_quantized and (
            x.qscheme() is not self._torch.per_tensor_affine
            or x.dtype in (self._torch.quint4x2, self._torch.quint2x4)
        ):
            raise refuse(
                f"a tensor of {x.dtype} quantized {x.qscheme()}", "give x.int_repr(), or its parts"
            )
        if writes and _overlaps(x.shape, x.stride()):
            raise refuse(
                "a tensor whose elements share memory (expand(), as_strided()) cannot be written",
                "give x.contiguous() and take the result from it",
            )
        return CODE_OF_DTYPE.get(x.dtype)

    def device(self, x: Any) -> int:
        return int(x.get_device()) if x.is_cuda else -1

    def count(self, x: Any) -> int:
        return int(x.numel())

    def itemsize(self, x: Any) -> int:
        return int(x.element_size())

    def shape(self, x: Any) -> tuple[int, ...]:
        return tuple(x.shape)

    def is_contiguous(self, x: Any) -> bool:
        return bool(x.is_contiguous()) and not x.is_neg() and not x.is_conj()

    def address(self, x: Any, writes: bool) -> int:
        if writes:
            self._torch._C._increment_version([x])
        return int(x.data_ptr())

    def empty(self, x: Any, shape: Sequence[int]) -> Any:
        if x.is_quantized:  # of x's scale and zero point
            return self._torch.empty_quantized(tuple(shape), x)
        return self._torch.empty(tuple(shape), dtype=x.dtype, device=x.device)

    def copy(self, target: Any, source: Any) -> None:
        if source.dtype in self._copied_as_bytes:
            target, source = target.view(self._torch.uint8), source.view(self._torch.uint8)
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
            if name not in _OF_ML_DTYPES:
                CODE_OF_DTYPE[numpy.dtype(name)] = CODE_OF_NAME[name]

    def check(self, x: Any, writes: bool) -> int | None:
        if type(x).__name__ == "MaskedArray":
            raise refuse("a masked array", "give x.filled(0) or x.data")
        if x.dtype.hasobject:
            raise refuse(
                f"an array of {x.dtype}, which holds addresses of objects",
                "give arrays of numbers, or of S and U of a fixed length",
            )
        code = CODE_OF_DTYPE.get(x.dtype)
        if code is None:
            code = _code_of_ml_dtypes(x.dtype)
        if writes:
            if not x.flags.writeable:
                raise refuse("a read-only array cannot be written", "give x.copy()")
            if x.dtype.itemsize > 0 and _overlaps(x.shape, x.strides):
                raise refuse(
                    "an array whose elements share memory (broadcast_to()) cannot be written",
                    "give x.copy()",
                )
        return code

    def device(self, x: Any) -> int:
        return -1

    def count(self, x: Any) -> int:
        return int(x.size)

    def itemsize(self, x: Any) -> int:
        return int(x.dtype.itemsize)

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


def _code_of_ml_dtypes(dtype: Any) -> int | None:
    name = dtype.name
    if name not in _OF_ML_DTYPES or not dtype.isnative:
        return None
    code = CODE_OF_NAME[name]
    if dtype.itemsize != SIZE_OF_CODE[code]:
        return None
    CODE_OF_DTYPE[dtype] = code
    return code


def _address_of(x: Any, writes: bool) -> int:
    if x.dtype.kind in "biuf" and x.dtype.isbuiltin == 1:
        return _native.address_of(x, writes)
    # Others have no letter in the buffer protocol, or are aligned to less than their size.
    address: int = x.__array_interface__["data"][0]
    return address


class DlpackArrays(NumpyArrays):
    """Views of DLPack arrays: as unsigned integers of their width, where NumPy lacks the dtype."""

    name = "dlpack"

    def __init__(self, numpy: Any, code: int | None) -> None:
        super().__init__(numpy)
        self._code = code

    def check(self, x: Any, writes: bool) -> int | None:
        if writes and _overlaps(x.shape, x.strides):
            raise refuse("an array whose elements share memory cannot be written", "copy it")
        return self._code


_CUDA_ARRAYS = CudaArrays()


class Buffer:
    """One array at rest: where its bytes are while an operation uses them.

    Attributes:
        array: What the caller gave, or the view of it that is worked on.
        kind: Whose array it is.
        code: Number of the dtype that the core sees.
        device: Number of the CUDA device, or -1.
        unit: How many of the core's elements an element is: 1, or the bytes of one that is moved
            and that the core does not know. Counts and splits are given to the core times this.
    """

    __slots__ = ("_contiguous", "array", "code", "device", "kind", "unit", "writes")

    def __init__(self, x: Any, writes: bool, moves: bool = False) -> None:
        """``moves``: the operation only moves data, and so takes any dtype of a fixed size."""
        self.array, self.kind = _array_and_kind(x, writes)
        code = self.kind.check(self.array, writes)
        self.unit = 1
        if code is None:
            if not moves:
                raise _not_reducible(self.array.dtype)
            code, self.unit = _BYTE, self.kind.itemsize(self.array)
        self.code = code
        self.device = self.kind.device(self.array)
        self.writes = writes
        self._contiguous: Any = None

    @property
    def count(self) -> int:
        """Of the array's elements."""
        return self.kind.count(self.array)

    @property
    def dtype(self) -> str:
        return NAME_OF_CODE[self.code] if self.unit == 1 else str(self.array.dtype)

    @property
    def is_copy(self) -> bool:
        """Whether :meth:`place` gave memory other than the caller's."""
        return self._contiguous is not None

    def place(self, reads: bool = True) -> Place:
        """Address, count, dtype and device of contiguous memory, as the core is told them.

        ``reads``: its values matter.
        """
        kind = self.kind
        array = self.array
        if not kind.is_contiguous(array):
            self._contiguous = kind.empty(array, kind.shape(array))
            if reads:
                kind.copy(self._contiguous, array)
            array = self._contiguous
        number = self.code + PER_DEVICE * (1 + self.device)
        return kind.address(array, self.writes), self.count * self.unit, number

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


def enter_kind(array_type: type, kind: ArrayKind) -> None:
    """From now on arrays of exactly this type are taken, too."""
    _kind_of_type[array_type] = kind


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
        raise refuse(
            f"{type(x).__name__} is no array", "give a tensor, a NumPy array or one with DLPack"
        )
    return _dlpack_array(x, writes)


def _dlpack_array(x: Any, writes: bool) -> tuple[Any, ArrayKind]:
    device_type = int(x.__dlpack_device__()[0])
    if device_type == _DLPACK_CUDA:
        return x, _CUDA_ARRAYS
    if device_type not in _DLPACK_CPU:
        raise refuse(
            f"an array ({type(x).__name__}) on a device of DLPack's type {device_type}",
            "there are those of the CPU and of CUDA, copy it there",
        )
    import numpy

    view, code, writable = _native.dlpack_view(x)
    if view is None:
        raise refuse(
            f"an array ({type(x).__name__}) whose elements are no whole bytes",
            "give a view of its bytes",
        )
    if writes and not writable:
        raise refuse("a read-only array cannot be written", "give a copy")
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
    # Complex tensors may be the conjugates of what lies in their memory: not the direct path.
    code_of = {
        dtype: code
        for dtype, code in CODE_OF_DTYPE.items()
        if isinstance(dtype, torch.dtype) and not dtype.is_complex
    }.get

    def place(x: Any) -> Place | None:
        code = code_of(x.dtype)
        if code is None or not x.is_contiguous() or x.is_neg():
            return None
        if not x.is_cpu:
            if not x.is_cuda:
                return None
            code += PER_DEVICE * (1 + x.get_device())
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
