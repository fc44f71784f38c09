# SPDX-License-Identifier: Apache-2.0
"""Ciuic: collective communication for training on the network people have.

>>> from ciuic import CiuicContext, all_reduce           # doctest: +SKIP
>>> all_reduce(tensor)                                   # the sum over all ranks, in place

Start programs with ``ciuic run -n 2 program.py``, torchrun or mpiexec.
"""

from ciuic import _native, dtypes
from ciuic.collectives import (
    all_gather,
    all_gather_async,
    all_reduce,
    all_reduce_async,
    all_reduce_wait,
    barrier,
    barrier_async,
    broadcast,
    broadcast_async,
    reduce,
    reduce_async,
)
from ciuic.context import CiuicContext, default_context
from ciuic.devices import local_device
from ciuic.dtypes import ReduceOp
from ciuic.errors import (
    AbortedError,
    CiuicError,
    ClosedError,
    InvalidArgumentError,
    MismatchError,
    PeerLostError,
    RankFailedError,
    ResourceError,
    SecretError,
    SystemFailureError,
    TimeoutError,
    UnavailableError,
    UnsupportedError,
)
from ciuic.handles import Handle
from ciuic.initialise import initialise_torch_if_asked
from ciuic.run.spawn import spawn

__version__: str = _native.version()


def version() -> str:
    """Version of the library that is loaded."""
    return __version__


initialise_torch_if_asked()

__all__ = [
    "AbortedError",
    "CiuicContext",
    "CiuicError",
    "ClosedError",
    "Handle",
    "InvalidArgumentError",
    "MismatchError",
    "PeerLostError",
    "RankFailedError",
    "ReduceOp",
    "ResourceError",
    "SecretError",
    "SystemFailureError",
    "TimeoutError",
    "UnavailableError",
    "UnsupportedError",
    "all_gather",
    "all_gather_async",
    "all_reduce",
    "all_reduce_async",
    "all_reduce_wait",
    "barrier",
    "barrier_async",
    "broadcast",
    "broadcast_async",
    "default_context",
    "dtypes",
    "local_device",
    "reduce",
    "reduce_async",
    "spawn",
    "version",
]
