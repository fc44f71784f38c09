# SPDX-License-Identifier: Apache-2.0
"""Any Python objects, pickled. Only in a context that was made with ``allow_pickle=True``.

Unpickling runs code that the sender chooses. Whoever uses these functions trusts every rank, and
everything that can speak for one (docs/security.md), with all that this process may do. Everything
else in Ciuic never unpickles anything.

All of them block. The size of each object is told first, then its bytes are moved.
"""

from __future__ import annotations

import array
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ciuic import _native, collecting, submission
from ciuic import context as contexts
from ciuic.dtypes import CODE_OF_NAME
from ciuic.messages import check_tag
from ciuic.submission import NOWHERE, Budget, Call, check_rank, refuse

if TYPE_CHECKING:
    from ciuic.context import CiuicContext

_CODES = _native.operation_codes
_BYTE = CODE_OF_NAME["uint8"]
_INT64 = CODE_OF_NAME["int64"]


def all_gather_object(
    obj: Any, context: CiuicContext | None = None, *, timeout_s: float | None = None
) -> list[Any]:
    """Gather a picklable object of every rank on every rank. Trusts all ranks.

    Args:
        obj: Any object that can be pickled; ranks' may differ in type and size.
        context: The group of ranks, made with ``allow_pickle=True``. ``None`` takes the process's
            default context, which is not.
        timeout_s: Seconds from this call to the result. ``None`` takes the context's.

    Returns:
        A list of ``world_size`` objects, in rank order, all of them copies.

    Raises:
        ValueError: ``allow_pickle`` is off. Nothing was sent.
        pickle.PicklingError, TypeError, AttributeError: Whatever pickling ``obj`` raises; nothing
            was sent. Whatever unpickling raises comes after the operation has ended well.
        ciuic.MismatchError, ciuic.TimeoutError, ciuic.PeerLostError, ciuic.AbortedError:
            ``context`` takes no more work.

    Cost: an all-gather of 8 bytes, then one of the pickled bytes.
    Source: ``Communicator::all_gather_v``.
    """
    context, budget = _begin(context, timeout_s)
    own = pickle.dumps(obj)
    sizes = submission.all_gather_count(context, len(own), budget)
    every = bytearray(sum(sizes))
    call = Call(
        _CODES["all_gather"],
        _place(own),
        _place(every),
        _BYTE,
        uneven=True,
        output_counts=sizes,
    )
    _run(context, [call], budget)
    return _unpickled(every, sizes)


def gather_object(
    obj: Any, dst: int = 0, context: CiuicContext | None = None, *, timeout_s: float | None = None
) -> list[Any] | None:
    """Gather a picklable object of every rank on rank ``dst``, which trusts all of them.

    Args:
        obj, context, timeout_s: As for :func:`all_gather_object`.
        dst: Rank that gets the objects.

    Returns:
        On ``dst`` what :func:`all_gather_object` returns, elsewhere ``None``.

    Raises:
        As :func:`all_gather_object`.

    Cost: a gather of 8 bytes, then one of the pickled bytes. Source: ``Communicator::gather_v``.
    """
    context, budget = _begin(context, timeout_s)
    dst = check_rank("dst", dst, context)
    own = pickle.dumps(obj)
    sizes = submission.gather_count(context, len(own), dst, budget)
    every = bytearray(sum(sizes))
    call = Call(
        _CODES["gather"],
        _place(own),
        _place(every),
        _BYTE,
        root=dst,
        uneven=True,
        output_counts=sizes,
    )
    _run(context, [call], budget)
    return _unpickled(every, sizes) if context.rank == dst else None


def broadcast_object(
    obj: Any = None,
    src: int = 0,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
) -> Any:
    """Give every rank a copy of the picklable object that rank ``src`` has. Trusts ``src``.

    Args:
        obj: On ``src``, the object; elsewhere not looked at.
        src: Rank that has it.
        context, timeout_s: As for :func:`all_gather_object`.

    Returns:
        On ``src`` the object itself, elsewhere a copy.

    Raises:
        As :func:`all_gather_object`.

    Cost: a broadcast of 8 bytes, then one of the pickled bytes.
    Source: ``Communicator::broadcast``.
    """
    context, budget = _begin(context, timeout_s)
    src = check_rank("src", src, context)
    here = context.rank == src
    pickled = bytearray(pickle.dumps(obj)) if here else bytearray()
    size = array.array("q", (len(pickled),))
    place = size.buffer_info()
    _run(context, [Call(_CODES["broadcast"], place, place, _INT64, root=src)], budget)
    if not here:
        pickled = bytearray(size[0])
    place = _place(pickled)
    _run(context, [Call(_CODES["broadcast"], place, place, _BYTE, root=src)], budget)
    return obj if here else pickle.loads(pickled)


def scatter_object(
    objs: Sequence[Any] | None = None,
    src: int = 0,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
) -> Any:
    """Give each rank one of the picklable objects that rank ``src`` has. Trusts ``src``.

    Args:
        objs: On ``src``, ``world_size`` objects; elsewhere not looked at.
        src: Rank that has them.
        context, timeout_s: As for :func:`all_gather_object`.

    Returns:
        A copy of the object for this rank.

    Raises:
        As :func:`all_gather_object`; ValueError also where ``objs`` are not one for each rank.

    Cost: a scatter of 8 bytes a rank, then one of the pickled bytes.
    Source: ``Communicator::scatter_v``.
    """
    context, budget = _begin(context, timeout_s)
    src = check_rank("src", src, context)
    here = context.rank == src
    pickled: list[bytes] = []
    if here:
        given = [] if objs is None else list(objs)
        if len(given) != context.world_size:
            raise refuse(
                f"scatter_object: {len(given)} objects; give one for each of the "
                f"{context.world_size} ranks"
            )
        pickled = [pickle.dumps(obj) for obj in given]
    sizes = array.array("q", [len(each) for each in pickled])
    own_size = array.array("q", (0,))
    place = sizes.buffer_info() if here else NOWHERE
    call = Call(_CODES["scatter"], place, own_size.buffer_info(), _INT64, root=src)
    _run(context, [call], budget)
    every = b"".join(pickled)
    own = bytearray(own_size[0])
    call = Call(
        _CODES["scatter"],
        _place(every) if here else NOWHERE,
        _place(own),
        _BYTE,
        root=src,
        uneven=True,
        input_counts=list(sizes),
    )
    _run(context, [call], budget)
    return pickle.loads(own)


def send_object(
    obj: Any,
    dst: int,
    tag: int = 0,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
) -> None:
    """Send a picklable object to rank ``dst``, which receives it by :func:`recv_object`.

    Two messages carry it, its size and its bytes; what receives other messages from this rank, with
    this tag or any tag, is in the way.

    Args:
        obj, context, timeout_s: As for :func:`all_gather_object`.
        dst, tag: As for :func:`ciuic.send`.

    Raises:
        As :func:`all_gather_object`.

    Source: ``Communicator::send``.
    """
    context, budget = _begin(context, timeout_s)
    dst = check_rank("dst", dst, context)
    tag = check_tag(tag)
    pickled = pickle.dumps(obj)
    size = array.array("q", (len(pickled),))
    calls = [
        Call(_CODES["send"], size.buffer_info(), NOWHERE, _INT64, peer=dst, tag=tag),
        Call(_CODES["send"], _place(pickled), NOWHERE, _BYTE, peer=dst, tag=tag),
    ]
    _run(context, calls, budget)


def recv_object(
    src: int | None = None,
    tag: int | None = 0,
    context: CiuicContext | None = None,
    *,
    timeout_s: float | None = None,
) -> Any:
    """Receive an object that a rank sends by :func:`send_object`. Trusts that rank.

    Threads of a rank that receive objects at once do so with different tags.

    Args:
        src, tag: As for :func:`ciuic.recv`.
        context, timeout_s: As for :func:`all_gather_object`.

    Returns:
        The object.

    Raises:
        As :func:`all_gather_object`.

    Source: ``Communicator::recv``.
    """
    context, budget = _begin(context, timeout_s)
    peer = -1 if src is None else check_rank("src", src, context)
    number = -1 if tag is None else check_tag(tag)
    size = array.array("q", (0,))
    call = Call(_CODES["recv"], NOWHERE, size.buffer_info(), _INT64, peer=peer, tag=number)
    work = context._native.submit((call,), budget.whole_ms, (), True, of_library=True)
    work.wait()
    pickled = bytearray(size[0])
    call = Call(_CODES["recv"], NOWHERE, _place(pickled), _BYTE, peer=work.source, tag=work.tag)
    _run(context, [call], budget)
    return pickle.loads(pickled)


def _begin(context: CiuicContext | None, timeout_s: float | None) -> tuple[CiuicContext, Budget]:
    context = contexts.of(context)
    budget = Budget(context, timeout_s)
    if not context.allow_pickle:
        raise refuse(
            "objects are sent pickled, and unpickling runs code that the sender chooses; where you "
            "trust every rank, make the context with allow_pickle=True. Else send arrays"
        )
    if collecting.is_here(context):
        raise refuse("operations on objects block, and cannot be collected; make them outside")
    return context, budget


def _run(context: CiuicContext, calls: list[_native.Call], budget: Budget) -> None:
    context._native.submit(calls, budget.left_ms(), None, of_library=True)


def _place(data: bytes | bytearray) -> tuple[int, int]:
    return _native.address_of(data, False), len(data)


def _unpickled(every: bytearray, sizes: Sequence[int]) -> list[Any]:
    view = memoryview(every)
    objects = []
    begin = 0
    for size in sizes:
        objects.append(pickle.loads(view[begin : begin + size]))
        begin += size
    return objects
