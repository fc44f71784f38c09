# SPDX-License-Identifier: Apache-2.0
"""How each implementation is called, in place, on one buffer. Imported in the workers alone."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import mmap
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any, Protocol

from ciuic import _native
from ciuic.bench.options import BY_MPI, BY_NAME, BY_NCCL, OF_BACKEND, OF_TORCH
from ciuic.dtypes import CODE_OF_NAME, SIZE_OF_CODE, ReduceOp
from ciuic.errors import UnavailableError

Call = Callable[[], object]


class RefusedError(Exception):
    """This implementation does not do what was asked, and says why."""


class Implementation(Protocol):
    """One implementation in one process of its group."""

    def run(self, through: str, count: int, warm_up: int, iterations: int) -> list[int]:
        """Nanoseconds of each of ``iterations`` calls on the first ``count`` elements."""
        ...

    def address(self) -> int:
        """Of the buffer."""
        ...

    def close(self) -> None: ...


def timed(call: Call, warm_up: int, iterations: int) -> list[int]:
    """The loop in Python: from the end of the call before to the end of this one."""
    for _ in range(warm_up):
        call()
    durations = []
    last = perf_counter_ns()
    for _ in range(iterations):
        call()
        now = perf_counter_ns()
        durations.append(now - last)
        last = now
    return durations


class _Memory:
    """Zeroed memory: as an array of PyTorch or, without it, of NumPy; else, or where no array is
    wanted, plain."""

    def __init__(self, count: int, dtype: str, as_array: bool) -> None:
        self.array: Any = None
        if as_array and self._made_array(count, dtype):
            return
        self._plain = mmap.mmap(-1, count * SIZE_OF_CODE[CODE_OF_NAME[dtype]])
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._plain))

    def _made_array(self, count: int, dtype: str) -> bool:
        try:
            import torch

            self.array = torch.zeros(count, dtype=getattr(torch, dtype))
            self.address = int(self.array.data_ptr())
            return True
        except ImportError:
            pass
        try:
            import numpy as np

            self.array = np.zeros(count, dtype)
            self.array.fill(0)  # touches it
            self.address = int(self.array.ctypes.data)
            return True
        except (ImportError, TypeError):  # no NumPy, or none of its dtypes
            return False


class Ciuic:
    """This library: from C++, and by ``ciuic.all_reduce``. Each has a group of its own."""

    def __init__(
        self,
        rank: int,
        ranks: int,
        settings: dict[str, Any],
        algorithm: str | None = None,
        backend: str = "auto",
    ) -> None:
        if algorithm is not None:
            load_algorithms(settings["module"], settings["plan"])
        self._algorithm = algorithm
        self._memory = _Memory(
            max(settings["counts"]), settings["dtype"], "python" in settings["through"]
        )
        self._dtype = CODE_OF_NAME[settings["dtype"]]
        self._op = ReduceOp[settings["op"].upper()]
        self._native: Any = None
        self._context: Any = None
        timeout_s = settings["timeout_s"]
        if "native" in settings["through"]:
            self._native = _native.create_bench_loop(
                rank, ranks, round(timeout_s * 1000), backend, **_of_mpi(backend)
            )
            self._add_plan()
        if "python" in settings["through"]:
            from ciuic import CiuicContext

            self._context = CiuicContext(ranks, rank, backend, timeout_s=timeout_s)

    def run(self, through: str, count: int, warm_up: int, iterations: int) -> list[int]:
        if through == "native":
            durations: list[int] = self._native.all_reduce(
                self._memory.address,
                count,
                self._dtype,
                int(self._op),
                warm_up,
                iterations,
                self._algorithm or "",
            )
            return durations
        if self._memory.array is None:
            raise RefusedError("neither PyTorch nor NumPy has arrays of this dtype here")
        from ciuic import all_reduce

        x, op, context = self._memory.array[:count], self._op, self._context
        algorithm = self._algorithm
        if algorithm is None:
            return timed(lambda: all_reduce(x, op, context), warm_up, iterations)
        return timed(lambda: all_reduce(x, op, context, algorithm=algorithm), warm_up, iterations)

    def _add_plan(self) -> None:
        """Gives the loop's group the plans of a registered algorithm."""
        from ciuic.plan import Layout, registry

        own = registry.find(self._algorithm, "all_reduce") if self._algorithm else None
        if own is not None:
            layout = Layout.parse(self._described()["layout"])
            self._native.add_plan(own.file(layout, 0))

    def library(self) -> str:
        """The MPI that carries the operations out; "" without one."""
        told = self._context.describe() if self._native is None else self._described()
        return str(told.get("mpi", {}).get("library", ""))

    def _described(self) -> Any:
        return json.loads(self._native.describe())

    def address(self) -> int:
        return self._memory.address

    def close(self) -> None:
        for group in (self._native, self._context):
            if group is not None:
                group.close()


def _of_mpi(backend: str) -> dict[str, Any]:
    """What the native loop must know of MPI."""
    if backend != "mpi":
        return {}
    from ciuic.mpi import found

    known = found()
    return {name: known[name] for name in ("mpi_libraries", "mpi_constants") if name in known}


class CiuicOnGpus:
    """This library by NCCL, on tensors of PyTorch's, a GPU for each rank."""

    def __init__(self, rank: int, ranks: int, settings: dict[str, Any]) -> None:
        try:
            import torch
        except ImportError:
            raise RefusedError("needs tensors on GPUs, and PyTorch is not installed") from None
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if gpus < ranks:
            raise RefusedError(
                f"needs a GPU for each of {ranks} ranks, and PyTorch has {gpus or 'none'} here"
            )
        from ciuic import CiuicContext

        torch.cuda.set_device(rank)
        self._synchronize = torch.cuda.synchronize
        self._memory = _Memory(max(settings["counts"]), settings["dtype"], True)
        self._tensor = self._memory.array.to(f"cuda:{rank}")
        self._op = ReduceOp[settings["op"].upper()]
        self._context = CiuicContext(ranks, rank, "nccl", timeout_s=settings["timeout_s"])

    def run(self, through: str, count: int, warm_up: int, iterations: int) -> list[int]:
        from ciuic import all_reduce

        x, op, context = self._tensor[:count], self._op, self._context

        def call() -> None:
            all_reduce(x, op, context)
            self._synchronize()  # the call itself does not wait for the result

        return timed(call, warm_up, iterations)

    def once(self, through: str, count: int) -> None:
        """As :meth:`run`, on what stands at :meth:`address`."""
        host = self._memory.array[:count]
        self._tensor[:count].copy_(host)
        self.run(through, count, 0, 1)
        host.copy_(self._tensor[:count])
        self._tensor.zero_()

    def address(self) -> int:
        return self._memory.address

    def close(self) -> None:
        self._context.close()


@contextlib.contextmanager
def gloos_refusals() -> Iterator[None]:
    """What gloo says of a dtype or op that it lacks is no failure."""
    try:
        yield
    except RuntimeError as error:
        if "scalar type" in str(error) or "ReduceOp" in str(error):
            raise RefusedError(f"gloo: {str(error).splitlines()[0]}") from None
        raise


class Gloo:
    """PyTorch's gloo: its ProcessGroup directly, without what torch.distributed adds."""

    def __init__(self, rank: int, ranks: int, settings: dict[str, Any]) -> None:
        try:
            import torch
            from torch import distributed
        except ImportError:
            raise RefusedError("PyTorch is not installed") from None
        from datetime import timedelta

        dtype = getattr(torch, settings["dtype"])
        if settings["op"] == "avg" and not dtype.is_floating_point:
            raise RefusedError(f"gloo has no avg of {settings['dtype']}")
        self._tensor = torch.zeros(max(settings["counts"]), dtype=dtype)
        self._options = distributed.AllreduceOptions()
        self._options.reduceOp = getattr(distributed.ReduceOp, settings["op"].upper())
        timeout = timedelta(seconds=settings["timeout_s"])
        store = distributed.FileStore(settings["folder"] + "/gloo", ranks)
        self._group = distributed.ProcessGroupGloo(store, rank, ranks, timeout)

    def run(self, through: str, count: int, warm_up: int, iterations: int) -> list[int]:
        tensors, options, group = [self._tensor[:count]], self._options, self._group
        with gloos_refusals():
            return timed(lambda: group.allreduce(tensors, options).wait(), warm_up, iterations)

    def address(self) -> int:
        return int(self._tensor.data_ptr())

    def close(self) -> None:
        pass


def load_algorithms(module: str, plan: str) -> str | None:
    """Registers what a Python file and a plan file have; the name of the plan file's."""
    from ciuic.plan import load
    from ciuic.plan.modules import import_module

    if module:
        import_module(module)
    return load(plan) if plan else None


class Joined:
    """One implementation in one process, called in any of its ways."""

    def __init__(self, impl: str, rank: int, ranks: int, settings: dict[str, Any]) -> None:
        of_torch = [way for way in settings["through"] if way in OF_TORCH]
        self._own: Implementation | None = None
        self._torch: Any = None
        if impl.startswith(BY_NAME):
            self._own = Ciuic(rank, ranks, settings, impl[len(BY_NAME) :])
        elif impl in _MAKERS and len(of_torch) < len(settings["through"]):
            try:
                self._own = _MAKERS[impl](rank, ranks, settings)
            except UnavailableError as error:
                if not impl.startswith(OF_BACKEND):
                    raise
                raise RefusedError(str(error)) from None
        if of_torch and not impl.startswith((BY_NAME, OF_BACKEND)):
            try:
                from ciuic.bench.through_torch import ThroughTorch
            except ImportError:
                raise RefusedError("PyTorch is not installed") from None
            self._torch = ThroughTorch(impl, rank, ranks, settings)

    def run(self, through: str, count: int, warm_up: int, iterations: int) -> list[int]:
        durations: list[int] = self._of(through).run(through, count, warm_up, iterations)
        return durations

    def once(self, through: str, count: int) -> None:
        """One call, on what stands at :meth:`address`."""
        own = self._of(through)
        if isinstance(own, CiuicOnGpus):
            own.once(through, count)
        else:
            own.run(through, count, 0, 1)

    def library(self) -> str:
        """What this implementation stands for, where that has a name of its own."""
        return self._own.library() if isinstance(self._own, Ciuic) else ""

    def address(self, through: str) -> int:
        """Of the buffer that is reduced."""
        return int(self._of(through).address())

    def check_step(self, count: int) -> int:
        """The first gradient of a step of ddp that is wrong, or -1."""
        return int(self._torch.check(count))

    def close(self) -> None:
        for one in (self._own, self._torch):
            if one is not None:
                one.close()

    def _of(self, through: str) -> Any:
        return self._torch if through in OF_TORCH else self._own


_MAKERS: dict[str, Callable[[int, int, dict[str, Any]], Implementation]] = {
    "ciuic": Ciuic,
    "ciuic:native": functools.partial(Ciuic, backend="native"),
    BY_MPI: functools.partial(Ciuic, backend="mpi"),
    BY_NCCL: CiuicOnGpus,
    "gloo": Gloo,
}
