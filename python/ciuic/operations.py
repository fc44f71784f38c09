# SPDX-License-Identifier: Apache-2.0
"""The operations as methods of :class:`ciuic.CiuicContext`. The functions say what each does."""

# mypy: disable-error-code="misc"
# This is a part of one class, whose type its ``self`` has, and of no other.

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ciuic import collectives, gathering, groups, messages, objects, scattering
from ciuic.dtypes import ReduceOp
from ciuic.handles import Handle, ReceiveHandle

if TYPE_CHECKING:
    from ciuic.context import CiuicContext


class Operations:
    """What a group of ranks can do."""

    def all_reduce(
        self: CiuicContext,
        x: Any,
        op: ReduceOp = ReduceOp.SUM,
        wire: str | None = None,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Any:
        """See :func:`ciuic.all_reduce`."""
        return collectives.all_reduce(x, op, self, wire, timeout_s=timeout_s, algorithm=algorithm)

    def all_reduce_async(
        self: CiuicContext,
        x: Any,
        op: ReduceOp = ReduceOp.SUM,
        wire: str | None = None,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Handle:
        """See :func:`ciuic.all_reduce_async`."""
        return collectives.all_reduce_async(
            x, op, self, wire, timeout_s=timeout_s, algorithm=algorithm
        )

    def reduce(
        self: CiuicContext,
        x: Any,
        dst: int = 0,
        op: ReduceOp = ReduceOp.SUM,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Any:
        """See :func:`ciuic.reduce`."""
        return collectives.reduce(x, dst, op, self, timeout_s=timeout_s, algorithm=algorithm)

    def reduce_async(
        self: CiuicContext,
        x: Any,
        dst: int = 0,
        op: ReduceOp = ReduceOp.SUM,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Handle:
        """See :func:`ciuic.reduce_async`."""
        return collectives.reduce_async(x, dst, op, self, timeout_s=timeout_s, algorithm=algorithm)

    def reduce_scatter(
        self: CiuicContext,
        x: Any,
        op: ReduceOp = ReduceOp.SUM,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Any:
        """See :func:`ciuic.reduce_scatter`."""
        return collectives.reduce_scatter(x, op, self, timeout_s=timeout_s, algorithm=algorithm)

    def reduce_scatter_async(
        self: CiuicContext,
        x: Any,
        op: ReduceOp = ReduceOp.SUM,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Handle:
        """See :func:`ciuic.reduce_scatter_async`."""
        return collectives.reduce_scatter_async(
            x, op, self, timeout_s=timeout_s, algorithm=algorithm
        )

    def reduce_scatter_v(
        self: CiuicContext,
        x: Any,
        op: ReduceOp = ReduceOp.SUM,
        *,
        counts: Sequence[int] | None = None,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Any:
        """See :func:`ciuic.reduce_scatter_v`."""
        return collectives.reduce_scatter_v(
            x, op, self, counts=counts, timeout_s=timeout_s, algorithm=algorithm
        )

    def reduce_scatter_v_async(
        self: CiuicContext,
        x: Any,
        op: ReduceOp = ReduceOp.SUM,
        *,
        counts: Sequence[int] | None = None,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Handle:
        """See :func:`ciuic.reduce_scatter_v_async`."""
        return collectives.reduce_scatter_v_async(
            x, op, self, counts=counts, timeout_s=timeout_s, algorithm=algorithm
        )

    def barrier(
        self: CiuicContext, *, timeout_s: float | None = None, algorithm: str | None = None
    ) -> None:
        """See :func:`ciuic.barrier`."""
        collectives.barrier(self, timeout_s=timeout_s, algorithm=algorithm)

    def barrier_async(
        self: CiuicContext, *, timeout_s: float | None = None, algorithm: str | None = None
    ) -> Handle:
        """See :func:`ciuic.barrier_async`."""
        return collectives.barrier_async(self, timeout_s=timeout_s, algorithm=algorithm)

    def broadcast(
        self: CiuicContext,
        x: Any,
        src: int = 0,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Any:
        """See :func:`ciuic.broadcast`."""
        return scattering.broadcast(x, src, self, timeout_s=timeout_s, algorithm=algorithm)

    def broadcast_async(
        self: CiuicContext,
        x: Any,
        src: int = 0,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Handle:
        """See :func:`ciuic.broadcast_async`."""
        return scattering.broadcast_async(x, src, self, timeout_s=timeout_s, algorithm=algorithm)

    def scatter(
        self: CiuicContext,
        out: Any,
        xs: Any = None,
        src: int = 0,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Any:
        """See :func:`ciuic.scatter`."""
        return scattering.scatter(out, xs, src, self, timeout_s=timeout_s, algorithm=algorithm)

    def scatter_async(
        self: CiuicContext,
        out: Any,
        xs: Any = None,
        src: int = 0,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Handle:
        """See :func:`ciuic.scatter_async`."""
        return scattering.scatter_async(
            out, xs, src, self, timeout_s=timeout_s, algorithm=algorithm
        )

    def scatter_v(
        self: CiuicContext,
        out: Any,
        xs: Any = None,
        src: int = 0,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Any:
        """See :func:`ciuic.scatter_v`."""
        return scattering.scatter_v(out, xs, src, self, timeout_s=timeout_s, algorithm=algorithm)

    def scatter_v_async(
        self: CiuicContext,
        out: Any,
        xs: Any = None,
        src: int = 0,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Handle:
        """See :func:`ciuic.scatter_v_async`."""
        return scattering.scatter_v_async(
            out, xs, src, self, timeout_s=timeout_s, algorithm=algorithm
        )

    def all_to_all(
        self: CiuicContext, x: Any, *, timeout_s: float | None = None, algorithm: str | None = None
    ) -> Any:
        """See :func:`ciuic.all_to_all`."""
        return scattering.all_to_all(x, self, timeout_s=timeout_s, algorithm=algorithm)

    def all_to_all_async(
        self: CiuicContext, x: Any, *, timeout_s: float | None = None, algorithm: str | None = None
    ) -> Handle:
        """See :func:`ciuic.all_to_all_async`."""
        return scattering.all_to_all_async(x, self, timeout_s=timeout_s, algorithm=algorithm)

    def all_to_all_v(
        self: CiuicContext,
        x: Any,
        input_split_sizes: Sequence[int] | None = None,
        output_split_sizes: Sequence[int] | None = None,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Any:
        """See :func:`ciuic.all_to_all_v`."""
        return scattering.all_to_all_v(
            x, input_split_sizes, output_split_sizes, self, timeout_s=timeout_s, algorithm=algorithm
        )

    def all_to_all_v_async(
        self: CiuicContext,
        x: Any,
        input_split_sizes: Sequence[int] | None = None,
        output_split_sizes: Sequence[int] | None = None,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Handle:
        """See :func:`ciuic.all_to_all_v_async`."""
        return scattering.all_to_all_v_async(
            x, input_split_sizes, output_split_sizes, self, timeout_s=timeout_s, algorithm=algorithm
        )

    def all_gather(
        self: CiuicContext, x: Any, *, timeout_s: float | None = None, algorithm: str | None = None
    ) -> list[Any]:
        """See :func:`ciuic.all_gather`."""
        return gathering.all_gather(x, self, timeout_s=timeout_s, algorithm=algorithm)

    def all_gather_async(
        self: CiuicContext, x: Any, *, timeout_s: float | None = None, algorithm: str | None = None
    ) -> Handle:
        """See :func:`ciuic.all_gather_async`."""
        return gathering.all_gather_async(x, self, timeout_s=timeout_s, algorithm=algorithm)

    def all_gather_v(
        self: CiuicContext,
        x: Any,
        counts: Sequence[int] | None = None,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> list[Any]:
        """See :func:`ciuic.all_gather_v`."""
        return gathering.all_gather_v(x, counts, self, timeout_s=timeout_s, algorithm=algorithm)

    def all_gather_v_async(
        self: CiuicContext,
        x: Any,
        counts: Sequence[int] | None = None,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Handle:
        """See :func:`ciuic.all_gather_v_async`."""
        return gathering.all_gather_v_async(
            x, counts, self, timeout_s=timeout_s, algorithm=algorithm
        )

    def gather(
        self: CiuicContext,
        x: Any,
        dst: int = 0,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> list[Any] | None:
        """See :func:`ciuic.gather`."""
        return gathering.gather(x, dst, self, timeout_s=timeout_s, algorithm=algorithm)

    def gather_async(
        self: CiuicContext,
        x: Any,
        dst: int = 0,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Handle:
        """See :func:`ciuic.gather_async`."""
        return gathering.gather_async(x, dst, self, timeout_s=timeout_s, algorithm=algorithm)

    def gather_v(
        self: CiuicContext,
        x: Any,
        dst: int = 0,
        counts: Sequence[int] | None = None,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> list[Any] | None:
        """See :func:`ciuic.gather_v`."""
        return gathering.gather_v(x, dst, counts, self, timeout_s=timeout_s, algorithm=algorithm)

    def gather_v_async(
        self: CiuicContext,
        x: Any,
        dst: int = 0,
        counts: Sequence[int] | None = None,
        *,
        timeout_s: float | None = None,
        algorithm: str | None = None,
    ) -> Handle:
        """See :func:`ciuic.gather_v_async`."""
        return gathering.gather_v_async(
            x, dst, counts, self, timeout_s=timeout_s, algorithm=algorithm
        )

    def send(
        self: CiuicContext, x: Any, dst: int, tag: int = 0, *, timeout_s: float | None = None
    ) -> None:
        """See :func:`ciuic.send`."""
        messages.send(x, dst, tag, self, timeout_s=timeout_s)

    def send_async(
        self: CiuicContext,
        x: Any,
        dst: int,
        tag: int = 0,
        *,
        timeout_s: float | None = None,
    ) -> Handle:
        """See :func:`ciuic.send_async`."""
        return messages.send_async(x, dst, tag, self, timeout_s=timeout_s)

    def recv(
        self: CiuicContext,
        x: Any,
        src: int | None = None,
        tag: int | None = 0,
        *,
        timeout_s: float | None = None,
    ) -> int:
        """See :func:`ciuic.recv`."""
        return messages.recv(x, src, tag, self, timeout_s=timeout_s)

    def recv_async(
        self: CiuicContext,
        x: Any,
        src: int | None = None,
        tag: int | None = 0,
        *,
        timeout_s: float | None = None,
    ) -> ReceiveHandle:
        """See :func:`ciuic.recv_async`."""
        return messages.recv_async(x, src, tag, self, timeout_s=timeout_s)

    def all_gather_object(
        self: CiuicContext, obj: Any, *, timeout_s: float | None = None
    ) -> list[Any]:
        """See :func:`ciuic.all_gather_object`."""
        return objects.all_gather_object(obj, self, timeout_s=timeout_s)

    def gather_object(
        self: CiuicContext,
        obj: Any,
        dst: int = 0,
        *,
        timeout_s: float | None = None,
    ) -> list[Any] | None:
        """See :func:`ciuic.gather_object`."""
        return objects.gather_object(obj, dst, self, timeout_s=timeout_s)

    def broadcast_object(
        self: CiuicContext,
        obj: Any = None,
        src: int = 0,
        *,
        timeout_s: float | None = None,
    ) -> Any:
        """See :func:`ciuic.broadcast_object`."""
        return objects.broadcast_object(obj, src, self, timeout_s=timeout_s)

    def scatter_object(
        self: CiuicContext,
        objs: Sequence[Any] | None = None,
        src: int = 0,
        *,
        timeout_s: float | None = None,
    ) -> Any:
        """See :func:`ciuic.scatter_object`."""
        return objects.scatter_object(objs, src, self, timeout_s=timeout_s)

    def send_object(
        self: CiuicContext,
        obj: Any,
        dst: int,
        tag: int = 0,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """See :func:`ciuic.send_object`."""
        objects.send_object(obj, dst, tag, self, timeout_s=timeout_s)

    def recv_object(
        self: CiuicContext,
        src: int | None = None,
        tag: int | None = 0,
        *,
        timeout_s: float | None = None,
    ) -> Any:
        """See :func:`ciuic.recv_object`."""
        return objects.recv_object(src, tag, self, timeout_s=timeout_s)

    def coalesce(self: CiuicContext, *, timeout_s: float | None = None) -> groups.CoalescedCalls:
        """See :func:`ciuic.coalesce`."""
        return groups.coalesce(self, timeout_s=timeout_s)

    def persistent(self: CiuicContext, *, timeout_s: float | None = None) -> groups.PersistentCalls:
        """See :func:`ciuic.persistent`."""
        return groups.persistent(self, timeout_s=timeout_s)
