# SPDX-License-Identifier: Apache-2.0
"""CiuicContext: a fixed group of ranks that run collective operations together."""

from __future__ import annotations

import atexit
import contextlib
import operator
import os
import sys
import threading
import weakref
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

from ciuic import _native, devices, nvidia, rendezvous, tensors
from ciuic.dtypes import ReduceOp
from ciuic.errors import CiuicError, ClosedError, InvalidArgumentError
from ciuic.operations import Operations

_BACKENDS = ("auto", "native", "nccl", "mpi")

_open_contexts: weakref.WeakSet[CiuicContext] = weakref.WeakSet()
_numbers = {"next": 0}
_lock = threading.Lock()


class CiuicContext(Operations):
    """Joins a group of ranks, and is that group.

    All ranks make their contexts in the same order. Several threads may use one; threads that call
    at once must agree on the order of their calls. A context does not survive ``fork``: in the
    child every call raises :class:`ciuic.ClosedError`.

    Args:
        world_size: Number of ranks. ``None``: the launcher's, or torch.distributed's.
        rank: This process's, from 0. ``None``: likewise.
        backend: ``"native"`` is this library's own, ``"nccl"`` and ``"mpi"`` are those libraries.
            ``"auto"`` takes what fits: nccl for CUDA tensors, where every rank has NCCL and a GPU
            of its own; else native. All ranks take the same, and :meth:`describe` says why
            (docs/backends.md). With CUDA, the GPU of the local rank becomes the current device.
        buffer_size: Bytes of staging memory at most; :meth:`memory_usage` tells what is held. With
            nccl, the size of NCCL's buffers (``NCCL_BUFFSIZE``), where it is given.
            Beside it up to 16 small messages a peer, of 16 KiB at most, wait for their recv.
            ``None``: ``CIUIC_BUFFER_SIZE``, or 64 MiB (``1 << 26``).
        timeout_s: Seconds for the join, and for each operation that names no time of its own.
            ``None``: ``CIUIC_TIMEOUT_MS``, or 300.
        store: Where the ranks meet: ``"tcp://host:port"``, ``"file:///directory"``, a
            torch.distributed store, or an object with ``set``, ``get`` and ``add``. ``None``: the
            order that :mod:`ciuic.rendezvous` describes.
        group_name: Sets groups apart that meet in one store; alike on all ranks. ``None``: numbered
            in the order in which this process makes its contexts.
        allow_pickle: Whether the operations on objects (:func:`ciuic.all_gather_object`, ...) are
            there. They unpickle what other ranks send, which runs code of the sender's choice: this
            rank trusts all ranks. Groups made from this one have it, too.
        mpi_comm: With ``backend="mpi"``: the ``mpi4py`` communicator whose ranks make the group.
            ``None``: all processes of the MPI job.

    Raises:
        ValueError: Arguments that cannot be, or that the launcher contradicts. Nothing was sent.
        ciuic.UnavailableError: No place to meet, or a backend that is not there.
        ciuic.MismatchError: A world size, version or option that other ranks do not share, or a
            rank that is there twice; on every rank concerned.
        ciuic.TimeoutError: Ranks that did not come; the message names them.
        ciuic.SecretError: Another secret than that of the job.
        ciuic.ResourceError: Memory, descriptors or a port that were not to be had.
    """

    SUM = ReduceOp.SUM
    AVG = ReduceOp.AVG
    MIN = ReduceOp.MIN
    MAX = ReduceOp.MAX
    PRODUCT = ReduceOp.PRODUCT
    BAND = ReduceOp.BAND
    BOR = ReduceOp.BOR
    BXOR = ReduceOp.BXOR

    def __init__(
        self,
        world_size: int | None = None,
        rank: int | None = None,
        backend: str = "auto",
        buffer_size: int | None = None,
        timeout_s: float | None = None,
        *,
        store: Any = None,
        group_name: str | None = None,
        allow_pickle: bool = False,
        mpi_comm: Any = None,
    ) -> None:
        _check_backend(backend)
        self.allow_pickle = bool(allow_pickle)
        settings = _native.config()
        if backend == "auto":
            backend = settings["backend"]
        if buffer_size is None:
            buffer_size = 0  # the setting's, or the default
        elif buffer_size < 1:
            raise InvalidArgumentError(f"buffer_size={buffer_size} is less than 1 byte")
        self.timeout_s: float = settings["timeout_ms"] / 1000 if timeout_s is None else timeout_s
        timeout_ms = milliseconds(self.timeout_s)
        meeting, of_mpi = rendezvous.find_meeting_by(
            backend, rank, world_size, store, self.timeout_s, mpi_comm
        )
        with _lock:
            number = _numbers["next"]
            _numbers["next"] += 1
        self._native = _native.create_communicator(
            meeting.rank,
            meeting.world_size,
            meeting.store,
            group_name or f"context-{number}",
            timeout_ms,
            buffer_size,
            backend,
            devices.make_current(backend),
            *(nvidia.libraries() if backend in ("auto", "nccl") else ()),
            **of_mpi,
        )
        self._adopt()
        if number == 0 and self.rank == 0 and self.world_size > 1:
            _announce(self)

    def _adopt(self) -> None:
        self.rank: int = self._native.rank
        self.world_size: int = self._native.size
        self._pid = os.getpid()
        self._plans: dict[tuple[str, str, int], Any] = {}  # ciuic.plan's that it has
        _open_contexts.add(self)
        _close_in_time()

    @property
    def error(self) -> CiuicError | None:
        """The error with which the group has ended; ``None`` while it has not."""
        try:
            self._native.check()
        except CiuicError as error:
            return error
        return None

    def abort(self, reason: str = "") -> None:
        """End the group on every rank, from any thread, also while others wait.

        Operations that have not ended raise :class:`ciuic.AbortedError` with ``reason``, as does
        every later one. Does not wait. Without effect where the group has ended already.
        """
        self._native.abort(reason)

    def shrink(self, timeout_s: float | None = None) -> CiuicContext:
        """A new context of those ranks that are not gone, in their old order.

        For use after an error such as :class:`ciuic.PeerLostError`. Every survivor calls it. The
        old context ends where it has not, and is still to be closed. Needs neither the store nor
        rank 0.

        Args:
            timeout_s: Seconds until all survivors have called it; ``None``: the context's.

        Raises:
            ciuic.TimeoutError: Names ranks that neither called it nor are known to be gone: nobody
                is left out for being late.
            ciuic.PeerLostError: The others have given this rank up.
            ciuic.ClosedError: The context is closed, or belongs to the parent of this process.
        """
        return self._made_from(self._native.shrink(milliseconds(timeout_s)))

    def subgroup(self, ranks: Sequence[int], timeout_s: float | None = None) -> CiuicContext:
        """A new context of some of the ranks. Exactly these ranks call it, with the same list.

        It lives and ends by itself, has the options of this one, and needs no store. Its operations
        and those of this one are not in each other's way, whatever the order.

        Args:
            ranks: Ranks of this context; rank ``i`` of the new one is ``ranks[i]`` here.
            timeout_s: Seconds until all of them have called it; ``None``: the context's.

        Raises:
            ValueError: A rank that is none of this context, is there twice, or is not this one that
                calls. Nothing was sent.
            ciuic.TimeoutError: Names ranks that did not come. As every error after this one, it
                ends this context, too: its ranks no longer agree.
            ciuic.MismatchError, ciuic.PeerLostError, ciuic.AbortedError

        Source: ``Communicator::subgroup``.
        """
        try:
            members = [operator.index(rank) for rank in ranks]
        except TypeError:
            raise InvalidArgumentError(
                f"subgroup: ranks={ranks!r} is no list of ranks. Nothing was sent."
            ) from None
        for rank in members:
            if not 0 <= rank < self.world_size:
                raise InvalidArgumentError(
                    f"subgroup: {rank} is no rank; there are 0 to {self.world_size - 1}. "
                    "Nothing was sent."
                )
        return self._made_from(self._native.subgroup(members, milliseconds(timeout_s)))

    def split(
        self, color: int | None, key: int = 0, timeout_s: float | None = None
    ) -> CiuicContext | None:
        """Cut the group into new ones: ranks of one ``color`` make one. All ranks call it.

        Args:
            color: 0 or more. ``None``: this rank is in none of the new groups.
            key: Ranks of the new group are in the order of ``key``, then of their rank here.
            timeout_s: Seconds until all ranks have called it; ``None``: the context's.

        Returns:
            The new context, as :meth:`subgroup` makes it; ``None`` without a color.

        Raises:
            ValueError: A negative color. Nothing was sent.
            Otherwise as :meth:`subgroup`.

        Source: ``Communicator::split``.
        """
        limit = 1 << 31
        for name, value, lowest in (("color", color, 0), ("key", key, -limit)):
            if value is not None and not lowest <= operator.index(value) < limit:
                raise InvalidArgumentError(
                    f"split: {name}={value} is not {lowest} to {limit - 1}"
                    f"{', or None for no group' if name == 'color' else ''}. Nothing was sent."
                )
        native = self._native.split(
            -1 if color is None else operator.index(color),
            operator.index(key),
            milliseconds(timeout_s),
        )
        return None if native is None else self._made_from(native)

    def _made_from(self, native: _native.Communicator) -> CiuicContext:
        made = CiuicContext.__new__(CiuicContext)
        made.timeout_s = self.timeout_s
        made.allow_pickle = self.allow_pickle
        made._native = native
        made._adopt()
        return made

    @property
    def backend(self) -> str:
        """What carries the operations out: ``"native"``, ``"nccl"`` or ``"mpi"``."""
        return str(self.describe()["backend"])

    def describe(self) -> dict[str, Any]:
        """What is in force: backend, ranks, hosts, layout, transports, interface, store, settings.

        ``backend_why`` says why it is that backend.
        ``store_is_private`` tells whether the job's secret came from a place that others cannot
        read; ``tls`` whether every TCP connection of the group goes by TLS (``CIUIC_TLS=1``): the
        join, what ranks tell each other of errors, and the data between hosts; ``not_shm`` why
        peers of this host are not reached by shared memory; ``strangers`` how many connections to
        this rank were turned away during the join, as they proved nothing.
        """
        import json

        description: dict[str, Any] = json.loads(self._native.describe())
        return description

    def empty(self, shape: int | Iterable[int], dtype: Any) -> Any:
        """See :func:`ciuic.empty`."""
        return tensors.empty(shape, dtype, self)

    def memory_usage(self) -> dict[str, int]:
        """Bytes held at this moment: ``staging`` (bounded by ``buffer_size``), ``segments``,
        ``links``, ``tensors`` (of :func:`ciuic.empty`, in use or kept for the next one, by all
        contexts of this process), and their ``total``."""
        usage = dict(self._native.memory_usage())
        usage["total"] = sum(usage.values())
        return usage

    def close(self) -> None:
        """End what is in flight with :class:`ciuic.AbortedError` and take no more. May be repeated.

        It does not wait for the peers; call :meth:`barrier` before it where they still need this
        rank. Raises the error with which the group has ended, where no call has raised it yet.
        """
        if self._pid == os.getpid():
            self._native.close()

    def __enter__(self) -> CiuicContext:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exception is None:
            return self.close()
        with contextlib.suppress(CiuicError):  # it must not hide what is being raised
            self.close()

    def __repr__(self) -> str:
        return f"<CiuicContext rank {self.rank} of {self.world_size}>"

    def __reduce__(self) -> Any:
        raise TypeError("a CiuicContext belongs to its process and cannot be pickled")


_default: CiuicContext | None = None
_default_pid = -1


def default_context() -> CiuicContext:
    """The process's default context, made on first use from the launcher's environment.

    Raises:
        ciuic.ClosedError: It was made before this process was forked.
        Otherwise as :class:`CiuicContext`.
    """
    global _default, _default_pid
    context = _default
    if context is not None and _default_pid == os.getpid():
        return context
    with _lock_of_default:
        if _default is None:
            _default = CiuicContext()
            _default_pid = os.getpid()
        elif _default_pid != os.getpid():
            raise ClosedError(
                "the default context was made before this process was forked; start processes with "
                "ciuic.spawn or the start method 'spawn', or make a CiuicContext of their own here"
            )
        return _default


_lock_of_default = threading.Lock()


def of(context: CiuicContext | None) -> CiuicContext:
    """``context``, or the default one."""
    if context is None:
        return default_context()
    if not isinstance(context, CiuicContext):
        raise TypeError(f"context={context!r} is no CiuicContext")
    return context


def milliseconds(timeout_s: float | None) -> int:
    """``timeout_s`` for the core: -1 takes the communicator's.

    Raises:
        InvalidArgumentError: No number, or not more than 0 seconds.
    """
    if timeout_s is None:
        return -1
    try:
        is_some_time = timeout_s > 0
    except TypeError:
        raise InvalidArgumentError(
            f"timeout_s={timeout_s!r} is no number of seconds. Nothing was sent."
        ) from None
    if not is_some_time:
        raise InvalidArgumentError(f"timeout_s={timeout_s!r} is not more than 0. Nothing was sent.")
    return max(1, round(min(timeout_s, 1e9) * 1000))


def _check_backend(backend: str) -> None:
    if backend not in _BACKENDS:
        raise InvalidArgumentError(
            f"backend={backend!r} is unknown; there are 'auto', 'native', 'nccl' and 'mpi'"
        )


def _announce(context: CiuicContext) -> None:
    """One line on stderr, for the first group of a process that has more than one rank."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(start_line(context.describe()) + "\n")
        sys.stderr.flush()


def start_line(description: dict[str, Any]) -> str:
    """ "ciuic 0.1.0: 4 ranks on 2 hosts, shm tcp, eth0, joined in 12 ms" of ``describe()``."""
    ranks, hosts = description.get("ranks", 1), description.get("hosts", 1)
    if isinstance(hosts, list):
        hosts = len(hosts)
    parts = [f"{ranks} rank{'s' * (ranks != 1)} on {hosts} host{'s' * (hosts != 1)}"]
    transports = description.get("transports")
    if transports:
        parts.append("+".join(transports) if isinstance(transports, list) else str(transports))
    if description.get("interface"):
        parts.append(str(description["interface"]))
    if description.get("join_ms") is not None:
        parts.append(f"joined in {description['join_ms']:.0f} ms")
    return f"ciuic {_native.version()}: " + ", ".join(parts)


@atexit.register
def close_contexts() -> None:
    """Closes every context that this process has made."""
    for context in list(_open_contexts):
        with contextlib.suppress(CiuicError):
            context.close()


_closes_in_time: set[int] = set()  # processes


def _close_in_time() -> None:
    """A child of multiprocessing ends by ``os._exit``, which runs no ``atexit`` function; but it
    runs finalizers of its own kind."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is None or multiprocessing.parent_process() is None:
        return
    if os.getpid() in _closes_in_time:
        return
    from multiprocessing import util

    _closes_in_time.add(os.getpid())
    util.Finalize(None, close_contexts, exitpriority=10)


def forget_contexts() -> None:
    """In a child that was forked to be a rank: contexts of the parent are not ours."""
    global _default
    _default = None
    _open_contexts.clear()
    _numbers["next"] = 0
