# SPDX-License-Identifier: Apache-2.0
"""A library of arrays on the GPUs of the fake CUDA runtime: DLPack, and of the array API what ciuic
uses of it."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy
from ciuic import _native
from on_device import Cuda

_CODES = {"i": 0, "u": 1, "f": 2}
_CUDA = 2


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


_keep: dict[int, Any] = {}
_let_go = _Deleter(lambda address: _keep.pop(address, None) and None)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class _Memory:
    def __init__(self, cuda: Cuda, nbytes: int) -> None:
        self.cuda = cuda
        self.address = cuda.allocate(nbytes)

    def __del__(self) -> None:
        self.cuda.free(self.address)


class CudaArray:
    """``shape`` and ``strides`` in elements."""

    def __init__(
        self,
        cuda: Cuda,
        memory: _Memory,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: numpy.dtype,
        offset: int = 0,
    ) -> None:
        self.cuda = cuda
        self.memory = memory
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.offset = offset

    @staticmethod
    def of(cuda: Cuda, x: numpy.ndarray) -> CudaArray:
        array = empty(x.shape, dtype=x.dtype, device=cuda)
        x = numpy.ascontiguousarray(x)
        if x.nbytes > 0:
            cuda.store(array.address, x.ctypes.data, x.nbytes)
        return array

    @property
    def address(self) -> int:
        return self.memory.address + self.offset

    @property
    def device(self) -> Cuda:
        return self.cuda

    def __getitem__(self, index: Any) -> CudaArray:
        """The row of a number, or some rows."""
        first = index[0] if isinstance(index, tuple) else index
        step = self.strides[0] * self.dtype.itemsize
        if isinstance(first, slice):
            begin, end, _ = first.indices(self.shape[0])
            shape, strides = (max(0, end - begin), *self.shape[1:]), self.strides
        else:
            begin, shape, strides = first, self.shape[1:], self.strides[1:]
        offset = self.offset + begin * step
        return CudaArray(self.cuda, self.memory, shape, strides, self.dtype, offset)

    def numpy(self) -> numpy.ndarray:
        """A copy, behind what is in the stream."""
        x = numpy.empty(self.shape, self.dtype)
        if x.nbytes > 0:
            self.cuda.load(x.ctypes.data, self.address, x.nbytes)
        self.cuda.synchronize()
        return x

    def __array_namespace__(self) -> Any:
        import cuda_arrays

        return cuda_arrays

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_CUDA, self.cuda.device)

    def __dlpack__(self, **_: Any) -> Any:
        shape = (ctypes.c_int64 * len(self.shape))(*self.shape)
        strides = (ctypes.c_int64 * len(self.shape))(*self.strides)
        tensor = _Tensor(
            self.address,
            _CUDA,
            self.cuda.device,
            len(self.shape),
            _CODES[self.dtype.kind],
            8 * self.dtype.itemsize,
            1,
            shape,
            strides,
            0,
        )
        managed = _Managed(tensor, None, _let_go)
        address = ctypes.addressof(managed)
        _keep[address] = (managed, shape, strides, self)
        return _new_capsule(address, b"dltensor", None)


def empty(shape: Any, *, dtype: Any, device: Cuda) -> CudaArray:
    shape = tuple(shape)
    strides = tuple(int(numpy.prod(shape[i + 1 :])) for i in range(len(shape)))
    dtype = numpy.dtype(dtype)
    memory = _Memory(device, int(numpy.prod(shape)) * dtype.itemsize)
    return CudaArray(device, memory, shape, strides, dtype)


def work_in(cuda: Cuda) -> None:
    """The stream of the device is from now on that of this program's calls."""
    _native.set_stream_source(lambda _: int(cuda.stream.value or 0))
