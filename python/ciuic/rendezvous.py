# SPDX-License-Identifier: Apache-2.0
"""Where the ranks of a context meet, and who they are.

The order, first come first taken: a store or address that was given; torch.distributed's store,
where it is initialised; ``CIUIC_STORE`` (``ciuic run`` sets it); torchrun's ``MASTER_ADDR`` and
``MASTER_PORT``, spoken through torch, which is imported only then; PMI (``mpiexec``, ``srun``);
PMIx (Open MPI, ``srun``). C++ programs have the same order, without torch.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple, Protocol

from ciuic import _native, mpi
from ciuic.errors import (
    CiuicError,
    InvalidArgumentError,
    ResourceError,
    TimeoutError,
    UnavailableError,
)

_LONGEST_S = 1e9  # thirty years; "inf" is no number of milliseconds


class StoreLike(Protocol):
    """What the core needs of a store that is a Python object."""

    name: str

    def set(self, key: str, value: bytes) -> None: ...

    def get(self, key: str, timeout_ms: int) -> bytes:
        """Waits for the key; raises TimeoutError after ``timeout_ms``."""
        ...

    def add(self, key: str, amount: int) -> int: ...


class Meeting(NamedTuple):
    """Who this process is, and where it meets its peers.

    ``rank`` and ``world_size`` are -1 where the core finds them out itself, ``store`` is None where
    it needs none (one rank) or has its own way (PMI, PMIx).
    """

    rank: int
    world_size: int
    store: Any


class TorchStore:
    """torch.distributed's store as the core wants it. Everything ours stands under ``ciuic/``."""

    name = "torch"

    def __init__(self, store: Any) -> None:
        self._store = store

    def set(self, key: str, value: bytes) -> None:
        self._store.set("ciuic/" + key, value)

    def get(self, key: str, timeout_ms: int) -> bytes:
        """As :class:`StoreLike`. Asks again and again: torch's own wait cannot be interrupted."""
        import time

        key = "ciuic/" + key
        deadline = time.monotonic() + timeout_ms / 1000
        pause_s = 0.0005
        while not self._store.check([key]):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"key {key!r} is not in torch's store after {timeout_ms} ms")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.02)
        return bytes(self._store.get(key))

    def add(self, key: str, amount: int) -> int:
        return int(self._store.add("ciuic/" + key, amount))


def launched_as(timeout_s: float = _LONGEST_S) -> tuple[int, int] | None:
    """Rank and world size by torch.distributed or the launcher's variables; None without either.

    Raises:
        ValueError: ``RANK`` and ``WORLD_SIZE`` that count nodes, or are no numbers.
        ciuic.UnavailableError: The launcher speaks PMIx alone, and libpmix cannot be used.
    """
    distributed = _torch_distributed()
    if distributed is not None:
        return int(distributed.get_rank()), int(distributed.get_world_size())
    if not _is_launched():
        return None
    launched = _native.find_launcher(round(timeout_s * 1000))
    if launched.launcher == "RANK and WORLD_SIZE":
        raise InvalidArgumentError(
            f"RANK={launched.rank} and WORLD_SIZE={launched.size} without LOCAL_RANK seem to count "
            "nodes, as a job scheduler does, not processes. Start one process a rank with ciuic "
            "run, torchrun or mpiexec, or give CiuicContext world_size, rank and store."
        )
    return launched.rank, launched.size


def local_rank() -> int:
    """This process's number among those of its host, as its launcher says; -1 where it does not."""
    return _native.read_launcher().local_rank if _is_launched() else -1


def _is_launched() -> bool:
    try:
        _native.read_launcher()
    except UnavailableError:
        return False
    return True


def find_meeting(rank: int | None, world_size: int | None, store: Any, timeout_s: float) -> Meeting:
    """Settles rank, world size and store for a context.

    Raises:
        ValueError: A rank or world size that cannot be, or that the launcher contradicts.
        ciuic.UnavailableError: No rank or world size; the message lists what was tried.
    """
    timeout_s = min(timeout_s, _LONGEST_S)
    rank, world_size = _who(rank, world_size, store is not None, timeout_s)
    if world_size == 1:
        return Meeting(rank, world_size, None)
    if store is not None:
        return Meeting(rank, world_size, _given_store(store, timeout_s))
    distributed = _torch_distributed()
    if distributed is not None:
        return Meeting(rank, world_size, TorchStore(_default_store_of(distributed)))
    url = os.environ.get("CIUIC_STORE")
    if url:
        return Meeting(rank, world_size, _native.open_store(url, round(timeout_s * 1000)))
    if os.environ.get("MASTER_ADDR") and os.environ.get("MASTER_PORT"):
        return Meeting(rank, world_size, _torchrun_store(rank, timeout_s))
    return Meeting(rank, world_size, None)  # by PMI or PMIx, which the core speaks


def find_meeting_by(
    backend: str,
    rank: int | None,
    world_size: int | None,
    store: Any,
    timeout_s: float,
    mpi_comm: Any = None,
) -> tuple[Meeting, dict[str, Any]]:
    """As :func:`find_meeting`, and what the core must know of MPI.

    With ``backend="mpi"`` the ranks are MPI's, and meet by it where no store is given.

    Raises:
        ValueError, ciuic.UnavailableError: As find_meeting, and :func:`ciuic.mpi.found`.
    """
    if backend != "mpi":
        if mpi_comm is not None:
            raise InvalidArgumentError(
                f"mpi_comm= goes with backend='mpi', not with backend={backend!r}"
            )
        return find_meeting(rank, world_size, store, timeout_s), {}
    if rank is not None and world_size is None:
        raise InvalidArgumentError("rank= goes with world_size=; leave both out to take MPI's")
    whole = -1 if world_size is None else world_size
    given = None if store is None else _given_store(store, timeout_s)
    return Meeting(-1 if rank is None else rank, whole, given), mpi.found(mpi_comm)


def _who(
    rank: int | None, world_size: int | None, given_store: bool, timeout_s: float
) -> tuple[int, int]:
    launched = None
    if rank is None or world_size is None or not given_store:
        launched = launched_as(timeout_s)
    if rank is None or world_size is None:
        if launched is None and world_size == 1:
            launched = (0, 1)
        if launched is None:
            missing = "rank" if rank is None else "world_size"
            raise UnavailableError(
                f"{missing} was not given, torch.distributed is not initialised, and {_tried()}"
            )
        if world_size is not None and world_size != launched[1]:
            raise InvalidArgumentError(
                f"world_size={world_size}, but the launcher started {launched[1]} ranks"
            )
        rank = launched[0] if rank is None else rank
        world_size = launched[1]
    elif launched is not None and world_size > launched[1]:
        raise InvalidArgumentError(
            f"world_size={world_size}, but the launcher started {launched[1]} ranks"
        )
    if world_size < 1:
        raise InvalidArgumentError(f"world_size={world_size} is less than 1")
    if not 0 <= rank < world_size:
        raise InvalidArgumentError(
            f"rank={rank} is not from 0 to {world_size - 1} (world_size={world_size})"
        )
    return rank, world_size


def _torch_distributed() -> Any:
    """torch.distributed, where the program has initialised it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _default_store_of(distributed: Any) -> Any:
    return distributed.distributed_c10d._get_default_store()


def _given_store(store: Any, timeout_s: float) -> Any:
    if isinstance(store, str):
        return _native.open_store(store, round(timeout_s * 1000))
    if isinstance(store, _native.Store):
        return store
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and isinstance(store, distributed.Store):
        return TorchStore(store)
    if all(callable(getattr(store, name, None)) for name in ("set", "get", "add")):
        return store
    raise InvalidArgumentError(
        f"store={store!r} is no store: give 'tcp://host:port', 'file:///directory', a "
        "torch.distributed store, or an object with set, get and add"
    )


def _torchrun_store(rank: int, timeout_s: float) -> TorchStore:
    import datetime

    try:
        import torch.distributed as distributed
    except ImportError as error:
        raise UnavailableError(
            "MASTER_ADDR and MASTER_PORT name a store of torch, and torch cannot be imported "
            f"({error}); install it, or set CIUIC_STORE=tcp://host:port"
        ) from None
    agent_has_it = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    host, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    try:
        # multi_tenant: a later init_process_group() of this process shares the server and its port.
        store = distributed.TCPStore(
            host,
            int(port),
            is_master=rank == 0 and not agent_has_it,
            timeout=datetime.timedelta(seconds=timeout_s),
            wait_for_workers=False,
            multi_tenant=True,
        )
    except ValueError:
        raise InvalidArgumentError(f"MASTER_PORT={port!r} is no number") from None
    except RuntimeError as error:
        raise _torch_store_error(f"{host}:{port}", error) from None
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return TorchStore(distributed.PrefixStore(f"attempt_{attempt}", store))


def _torch_store_error(address: str, error: RuntimeError) -> CiuicError:
    text = str(error).splitlines()[0]
    if "EADDRINUSE" in text:
        return ResourceError(
            f"rank 0 cannot serve torch's store at {address} (MASTER_ADDR, MASTER_PORT): the "
            f"port is in use by another program; choose another one ({text})"
        )
    if "timed out" in text.lower() or "timeout" in text.lower():
        return TimeoutError(f"nobody answers at {address} (MASTER_ADDR, MASTER_PORT): {text}")
    return UnavailableError(f"torch's store at {address} (MASTER_ADDR, MASTER_PORT): {text}")


def _tried() -> str:
    """What the core says where it finds no launcher."""
    try:
        _native.read_launcher({})
    except UnavailableError as error:
        return str(error)
    raise AssertionError("no variables make no launcher")
