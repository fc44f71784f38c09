# SPDX-License-Identifier: Apache-2.0
"""Has every array of a program be on a GPU while an operation uses it.

``install(device)`` stands between ciuic and its core: what a call names of the CPU's memory is
copied to the device of the fake CUDA runtime (tests/fakes), by a kernel that runs later on a stream
of the caller's, and what the call has written is copied back when the program waits. So programs
that know nothing of GPUs run on one, with every array that they make.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

from ciuic import _native
from ciuic.dtypes import PER_DEVICE, SIZE_OF_CODE, dtype_in

DELAY_US = int(os.environ.get("KERNEL_US", "150"))  # of the kernel that writes an input
NOT_READY = 600
_DEVICE_TO_HOST = 2

_RealCall = _native.Call


class Cuda:
    """The device, and a stream on it that waits for no other."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.library = ctypes.CDLL(os.environ["CIUIC_CUDA_LIBRARY"])
        self.call("cudaSetDevice", device)
        self.stream = ctypes.c_void_p()
        self.call("cudaStreamCreateWithFlags", ctypes.byref(self.stream), 1)

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.library, name)(*arguments)
        assert code == 0, f"{name}: {code}"

    def allocate(self, nbytes: int) -> int:
        memory = ctypes.c_void_p()
        size = ctypes.c_size_t(max(nbytes, 1))
        self.call("cudaMallocAsync", ctypes.byref(memory), size, self.stream)
        return int(memory.value or 0)

    def free(self, address: int) -> None:
        self.call("cudaFreeAsync", ctypes.c_void_p(address), self.stream)

    def store(self, target: int, source: int, nbytes: int, delay_us: int = DELAY_US) -> None:
        """A kernel: what it writes is taken now, and written later."""
        pointers = (ctypes.c_void_p(target), ctypes.c_void_p(source))
        size, delay = ctypes.c_size_t(nbytes), ctypes.c_int64(delay_us)
        self.call("ciuic_fake_store", self.stream, *pointers, size, delay)

    def load(self, target: int, source: int, nbytes: int) -> None:
        pointers = (ctypes.c_void_p(target), ctypes.c_void_p(source))
        kind = ctypes.c_int(_DEVICE_TO_HOST)
        self.call("cudaMemcpyAsync", *pointers, ctypes.c_size_t(nbytes), kind, self.stream)

    def synchronize(self) -> None:
        self.call("cudaStreamSynchronize", self.stream)


class Call:
    """A call that is still to be told where its arrays are."""

    def __init__(self, operation: int, *places: Any, **named: Any) -> None:
        self.given = (operation, *places)
        self.named = named
        self.algorithm = ""
        real = _RealCall(operation, *places, **named)
        self.operation = real.operation
        self.root = real.root

    def use(self, algorithm: str) -> None:
        self.algorithm = algorithm

    def argument(self, position: int, name: str, default: Any) -> Any:
        if len(self.given) > position:
            return self.given[position]
        return self.named.get(name, default)

    @property
    def sides(self) -> list[tuple[int, int]]:
        """Address and bytes of input and output."""
        size = SIZE_OF_CODE[dtype_in(self.argument(3, "dtype", 0))]
        places = (self.argument(1, "input", (0, 0)), self.argument(2, "output", (0, 0)))
        return [(address, count * size) for address, count in places]

    def real(self, mirror: Mirror | None) -> _native.Call:
        given, named = list(self.given), dict(self.named)
        if mirror is not None:
            for position, name in ((1, "input"), (2, "output")):
                address, count = self.argument(position, name, (0, 0))
                place = (mirror.address_of(address) if count > 0 else 0, count)
                if len(given) > position:
                    given[position] = place
                else:
                    named[name] = place
            number = self.argument(3, "dtype", 0) + PER_DEVICE * (1 + mirror.cuda.device)
            if len(given) > 3:
                given[3] = number
            else:
                named["dtype"] = number
        call = _RealCall(*given, **named)
        if self.algorithm:
            call.use(self.algorithm)
        return call


class Mirror:
    """The memory of some calls on the device: what overlaps lies together there, too."""

    def __init__(self, cuda: Cuda, calls: list[Call]) -> None:
        self.cuda = cuda
        self.outputs = [call.sides[1] for call in calls if call.sides[1][1] > 0]
        sides = [side for call in calls for side in call.sides]
        spans = sorted((address, address + nbytes) for address, nbytes in sides if nbytes > 0)
        merged: list[tuple[int, int]] = []
        for begin, end in spans:
            if merged and begin < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end))
            else:
                merged.append((begin, end))
        self.blocks = [(begin, end, cuda.allocate(end - begin)) for begin, end in merged]
        self.send()

    def send(self) -> None:
        for begin, end, block in self.blocks:
            self.cuda.store(block, begin, end - begin)

    def address_of(self, address: int) -> int:
        for begin, end, block in self.blocks:
            if begin <= address < end:
                return block + address - begin
        raise AssertionError("an array that no call names")

    def fetch(self) -> None:
        """Copies what was written back, behind what the stream waits for."""
        for address, nbytes in self.outputs:
            self.cuda.load(address, self.address_of(address), nbytes)
        self.cuda.synchronize()

    def free(self) -> None:
        for _, _, block in self.blocks:
            self.cuda.free(block)
        self.blocks = []


class Work:
    """A Work whose results come back with wait()."""

    def __init__(self, work: Any, mirror: Mirror, once: bool = True) -> None:
        self.work = work
        self.mirror: Mirror | None = mirror
        self.once = once

    def wait(self) -> None:
        self.work.wait()
        if self.mirror is not None:
            self.mirror.fetch()
            if self.once:
                self.mirror.free()
        self.mirror = None

    def done(self) -> bool:
        return bool(self.work.done())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.work, name)


class Persistent:
    """Calls whose inputs go to the device at every start."""

    def __init__(self, persistent: Any, mirror: Mirror) -> None:
        self.persistent = persistent
        self.mirror = mirror

    def start(self) -> Work:
        self.mirror.send()
        return Work(self.persistent.start(), self.mirror, once=False)


class Communicator:
    """The core's, on a device."""

    def __init__(self, native: Any, cuda: Cuda) -> None:
        self.native = native
        self.cuda = cuda

    def submit(
        self,
        calls: Any,
        timeout_ms: int,
        keep: Any,
        wait_follows: bool = False,
        of_library: bool = False,
    ) -> Any:
        calls = list(calls)
        if of_library or all(call.operation == "barrier" for call in calls):
            real = [call.real(None) for call in calls]
            return self.native.submit(real, timeout_ms, keep, wait_follows, of_library)
        mirror = Mirror(self.cuda, calls)
        real = [call.real(mirror) for call in calls]
        work = self.native.submit(real, timeout_ms, keep, wait_follows)
        if work is not None:
            return Work(work, mirror)
        mirror.fetch()
        mirror.free()
        return None

    def all_reduce(
        self, input: int, output: int, count: int, dtype: int, op: int, *more: Any
    ) -> Any:
        operation = _native.operation_codes["all_reduce"]
        return self.submit([Call(operation, (input, count), (output, count), dtype, op)], *more)

    def all_reduce_by(
        self, algorithm: str, input: int, output: int, count: int, dtype: int, op: int, *more: Any
    ) -> Any:
        call = Call(
            _native.operation_codes["all_reduce"], (input, count), (output, count), dtype, op
        )
        call.use(algorithm)
        return self.submit([call], *more)

    def persistent(self, calls: Any, timeout_ms: int, wait_follows: bool, keep: Any) -> Persistent:
        calls = list(calls)
        mirror = Mirror(self.cuda, calls)
        real = [call.real(mirror) for call in calls]
        return Persistent(self.native.persistent(real, timeout_ms, wait_follows, keep), mirror)

    def subgroup(self, *arguments: Any) -> Communicator:
        return Communicator(self.native.subgroup(*arguments), self.cuda)

    def split(self, *arguments: Any) -> Communicator | None:
        made = self.native.split(*arguments)
        return None if made is None else Communicator(made, self.cuda)

    def shrink(self, *arguments: Any) -> Communicator:
        return Communicator(self.native.shrink(*arguments), self.cuda)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)


def install(device: int) -> Cuda:
    """From now on every context of this process works on the device."""
    cuda = Cuda(device)
    create = _native.create_communicator

    def create_on_device(*arguments: Any, **named: Any) -> Communicator:
        return Communicator(create(*arguments, **named), cuda)

    patched: Any = _native
    patched.create_communicator = create_on_device
    patched.Call = Call
    for name, module in list(sys.modules.items()):
        if name.startswith("ciuic.") and getattr(module, "Call", None) is _RealCall:
            setattr(module, "Call", Call)  # noqa: B010
    _native.set_stream_source(lambda _: int(cuda.stream.value or 0))
    return cuda
