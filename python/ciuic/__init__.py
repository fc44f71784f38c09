# SPDX-License-Identifier: Apache-2.0
"""Ciuic: collective communication for training on the network people have.

>>> from ciuic import CiuicContext, all_reduce           # doctest: +SKIP
>>> all_reduce(tensor)                                   # the sum over all ranks, in place

Start programs with ``ciuic run -n 2 program.py``, torchrun or mpiexec.
"""

# The context first: its methods are the operations, whose modules know of it.
from ciuic import _native, context, dtypes, plan  # noqa: F401
from ciuic.collectives import (
    all_reduce,
    all_reduce_async,
    all_reduce_wait,
    barrier,
    barrier_async,
    reduce,
    reduce_async,
    reduce_scatter,
    reduce_scatter_async,
    reduce_scatter_v,
    reduce_scatter_v_async,
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
from ciuic.gathering import (
    all_gather,
    all_gather_async,
    all_gather_v,
    all_gather_v_async,
    gather,
    gather_async,
    gather_v,
    gather_v_async,
)
from ciuic.groups import CoalescedCalls, PersistentCalls, coalesce, persistent
from ciuic.handles import Handle, ReceiveHandle
from ciuic.initialise import initialise_torch_if_asked
from ciuic.messages import (
    recv,
    recv_async,
    send,
    send_async,
)
from ciuic.monitoring import monitored_barrier
from ciuic.objects import (
    all_gather_object,
    broadcast_object,
    gather_object,
    recv_object,
    scatter_object,
    send_object,
)
from ciuic.run.spawn import spawn
from ciuic.scattering import (
    all_to_all,
    all_to_all_async,
    all_to_all_v,
    all_to_all_v_async,
    broadcast,
    broadcast_async,
    scatter,
    scatter_async,
    scatter_v,
    scatter_v_async,
)
from ciuic.tensors import empty

MAX_TAG: int = _native.MAX_TAG
"""The highest tag of a message."""

__version__: str = _native.version()


def version() -> str:
    """Version of the library that is loaded."""
    return __version__


initialise_torch_if_asked()

__all__ = [
    "MAX_TAG",
    "AbortedError",
    "CiuicContext",
    "CiuicError",
    "ClosedError",
    "CoalescedCalls",
    "Handle",
    "InvalidArgumentError",
    "MismatchError",
    "PeerLostError",
    "PersistentCalls",
    "RankFailedError",
    "ReceiveHandle",
    "ReduceOp",
    "ResourceError",
    "SecretError",
    "SystemFailureError",
    "TimeoutError",
    "UnavailableError",
    "UnsupportedError",
    "all_gather",
    "all_gather_async",
    "all_gather_object",
    "all_gather_v",
    "all_gather_v_async",
    "all_reduce",
    "all_reduce_async",
    "all_reduce_wait",
    "all_to_all",
    "all_to_all_async",
    "all_to_all_v",
    "all_to_all_v_async",
    "barrier",
    "barrier_async",
    "broadcast",
    "broadcast_async",
    "broadcast_object",
    "coalesce",
    "default_context",
    "dtypes",
    "empty",
    "gather",
    "gather_async",
    "gather_object",
    "gather_v",
    "gather_v_async",
    "local_device",
    "monitored_barrier",
    "persistent",
    "plan",
    "recv",
    "recv_async",
    "recv_object",
    "reduce",
    "reduce_async",
    "reduce_scatter",
    "reduce_scatter_async",
    "reduce_scatter_v",
    "reduce_scatter_v_async",
    "scatter",
    "scatter_async",
    "scatter_object",
    "scatter_v",
    "scatter_v_async",
    "send",
    "send_async",
    "send_object",
    "spawn",
    "version",
]
