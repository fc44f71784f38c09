# SPDX-License-Identifier: Apache-2.0
"""What two ranks send each other. Collective operations are not in its way, nor it in theirs."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from ciuic import _native, collecting
from ciuic import context as contexts
from ciuic.buffers import Buffer
from ciuic.handles import Handle, ReceiveHandle
from ciuic.submission import NOWHERE, Call, check_rank, refuse, submit

if TYPE_CHECKING:
    from ciuic.context import CiuicContext

_SEND = _native.operation_codes["send"]
_RECV = _native.operation_codes["recv"]
_ANY = -1  # kAnySource, kAnyTag


def send(
    x: Any,
    dst: int,
    tag: int = 0,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
) -> None:
    """Send ``x`` to rank ``dst``, which receives it by :func:`recv`.

    Of two messages to one rank with one tag, the first one is received first. Returns when ``x``
    may be used again: up to 16 KiB need not wait for the ``recv``. Ranks that send each other more
    than that do so by :func:`send_async` or inside :func:`coalesce`, for each would wait for the
    other.

    Args:
        x: ``[...]``, any strides, one array; may be read-only.
        dst: Rank that gets it. A rank that sends to itself does so by :func:`send_async` or inside
            :func:`coalesce`; :func:`send` would wait for the ``recv``.
        tag: 0 to ``ciuic.MAX_TAG``.
        context: The group of ranks. ``None`` takes the process's default context.
        timeout_s: Seconds from this call to its end. ``None`` takes the context's.

    Raises:
        ValueError: ``x`` is no array that can be taken, or ``dst`` or ``tag`` are none. Nothing was
            sent.
        ciuic.MismatchError: ``dst`` receives another dtype or number of elements; on all ranks.
        ciuic.TimeoutError, ciuic.PeerLostError, ciuic.AbortedError: ``context`` takes no more work.

    Cost: ``nbytes``, once. Strides cost a copy. Source: ``Communicator::send``.
    """
    _send(x, dst, tag, context, timeout_s, blocking=True).wait()


def send_async(
    x: Any,
    dst: int,
    tag: int = 0,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
) -> Handle:
    """Start what :func:`send` does, and return at once."""
    return _send(x, dst, tag, context, timeout_s, blocking=False)


def recv(
    x: Any,
    src: int | None = None,
    tag: int | None = 0,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
) -> int:
    """Receive into ``x`` what a rank sends by :func:`send`.

    Args:
        x: ``[...]``, any strides, one array of the message's dtype and number of elements, which is
            overwritten.
        src: Rank that sends it. ``None``: the first message of any rank.
        tag: The message's. ``None``: that of the first message.
        context, timeout_s: As for :func:`send`.

    Returns:
        The rank that sent it.

    Raises:
        As :func:`send`; ValueError also where ``x`` cannot be written. A receive from any rank ends
        with ciuic.PeerLostError where any rank is lost. ``x`` is undefined after an error.

    Cost: strides cost a copy. Source: ``Communicator::recv``.
    """
    source: int = _recv(x, src, tag, context, timeout_s, blocking=True).wait()
    return source


def recv_async(
    x: Any,
    src: int | None = None,
    tag: int | None = 0,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
) -> ReceiveHandle:
    """Start what :func:`recv` does, and return at once; ``wait()`` gives its result.

    ``source`` and ``tag`` of the handle tell whose message came, when it has.
    """
    return _recv(x, src, tag, context, timeout_s, blocking=False)


def check_tag(tag: Any) -> int:
    """A tag, as an int."""
    try:
        number = operator.index(tag)
    except TypeError:
        number = -1
    if not 0 <= number <= _native.MAX_TAG:
        raise refuse(f"tag={tag!r} is none; tags are 0 to {_native.MAX_TAG}")
    return number


def _send(
    x: Any,
    dst: int,
    tag: int,
    context: CiuicContext | None,
    timeout_s: float | None,
    *,
    blocking: bool,
) -> Handle:
    context = contexts.of(context)
    timeout_ms = contexts.milliseconds(timeout_s)
    dst = check_rank("dst", dst, context)
    tag = check_tag(tag)
    buffer = Buffer(x, writes=False, moves=True)
    address, count, dtype = buffer.place()
    call = Call(_SEND, (address, count), NOWHERE, dtype, peer=dst, tag=tag)
    return submit(context, call, timeout_ms, (x, buffer), None, blocking=blocking)


def _recv(
    x: Any,
    src: int | None,
    tag: int | None,
    context: CiuicContext | None,
    timeout_s: float | None,
    *,
    blocking: bool,
) -> ReceiveHandle:
    context = contexts.of(context)
    timeout_ms = contexts.milliseconds(timeout_s)
    if src is not None:
        src = check_rank("src", src, context)
    if tag is not None:
        tag = check_tag(tag)
    buffer = Buffer(x, writes=True, moves=True)
    address, count, dtype = buffer.place(reads=False)
    call = Call(
        _RECV,
        NOWHERE,
        (address, count),
        dtype,
        peer=_ANY if src is None else src,
        tag=_ANY if tag is None else tag,
    )
    collected = collecting.here(context)
    if collected is not None and not blocking:
        collected.note_receive(src is None or tag is None)
    # The Work tells whose message came, also to a caller that blocks.
    work = context._native.submit((call,), timeout_ms, (x, buffer), blocking)
    return ReceiveHandle(work, src, tag, buffer.finish)
