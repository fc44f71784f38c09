# SPDX-License-Identifier: Apache-2.0
"""What a rank is told by its launcher: torchrun's variables, and where and how the ranks meet."""

from __future__ import annotations

import contextlib
import os
import random
import socket

from ciuic import _native
from ciuic.errors import ResourceError

LOOPBACK = "127.0.0.1"

FOREIGN_PREFIXES = ("TORCHELASTIC_", "OMPI_COMM_WORLD_", "PMI_", "PMIX_", "SLURM_PROCID")
"""Of a launcher above us: they would tell a rank that it is another one."""


class Job:
    """One start of ``world_size`` ranks on this machine: their store, secret and port.

    The store listens on loopback alone, takes only those who prove the secret, and lives as long as
    this object.

    Args:
        world_size: Number of ranks.
    """

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        secret = os.urandom(32).hex()
        self._server = _native.StoreServer(LOOPBACK, secret)
        self._port_holder, master_port = _reserve_port(*self._server.ports)
        self._common = {
            "CIUIC_STORE": self._server.url,
            "CIUIC_SECRET": secret,
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(world_size),
            "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1",
            "MASTER_ADDR": LOOPBACK,
            "MASTER_PORT": str(master_port),
        }

    @property
    def mark(self) -> str:
        """What stands in the environment of every process that the ranks start, and nowhere else:
        "NAME=value"."""
        return f"CIUIC_SECRET={self._common['CIUIC_SECRET']}"

    def variables(self, rank: int) -> dict[str, str]:
        """What ``rank`` gets beside what this process has."""
        nccl = {name: value for name, value, _ in _native.nccl_advice()[0]}  # where there is RoCE
        return {**nccl, **self._common, "RANK": str(rank), "LOCAL_RANK": str(rank), **_share(self)}

    def environment(self, rank: int) -> dict[str, str]:
        """The whole environment of ``rank``."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(FOREIGN_PREFIXES)
        }
        return {**inherited, **self.variables(rank)}

    def close(self) -> None:
        """Gives port and store back. May be repeated."""
        self._port_holder.close()
        self._server.close()


def _share(job: Job) -> dict[str, str]:
    """Threads of a rank's numeric libraries, where the user has not said: ranks share the cores."""
    if "OMP_NUM_THREADS" in os.environ:
        return {}
    cores = len(os.sched_getaffinity(0))
    return {"OMP_NUM_THREADS": str(max(1, cores // job.world_size))}


def _reserve_port(first: int, last: int) -> tuple[socket.socket, int]:
    """A port for programs that call ``init_process_group()``, and the socket that reserves it.

    The socket is bound but never listens, with SO_REUSEADDR: so the kernel gives the port to nobody
    who asks for any, while rank 0, whose store sets SO_REUSEADDR too, can still bind it.

    Args:
        first: The first port of ``CIUIC_PORT_RANGE``; 0 for any port.
        last: The last one.
    """
    ports = list(range(first, last + 1)) if first else [0]
    random.shuffle(ports)  # launchers of one machine do not all begin at one port
    for port in ports:
        with contextlib.suppress(OSError):
            return _bound(port)
    raise ResourceError(
        f"no port of CIUIC_PORT_RANGE={first}-{last} is free at {LOOPBACK}: each is in use; make "
        "the range wider"
    )


def _bound(port: int) -> tuple[socket.socket, int]:
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # SO_REUSEADDR only then: it must not be a port that somebody else has reserved like this.
        holder.bind((LOOPBACK, port))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        holder.close()
        raise
    return holder, holder.getsockname()[1]
