# SPDX-License-Identifier: Apache-2.0
"""Makes the calls of a case, and compares what came with what is right, byte by byte."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ciuic
from ciuic import CiuicContext, ReduceOp
from ciuic.selftest.cases import Case
from ciuic.selftest.memory import Maker, itemsize
from ciuic.selftest.reference import first_difference, moved, reduced, reduced_input

_TO_ALL = -1
_TAG = 3
_STARTS = 3  # of a persistent operation


class Group:
    """One group of ranks, and what its cases need.

    Args:
        context: Of the group.
        maker: Of the arrays.
    """

    def __init__(self, context: CiuicContext, maker: Maker) -> None:
        self.context = context
        self.maker = maker
        self.rank = context.rank
        self.size = context.world_size
        self.root = self.size - 1  # not 0, which is what a mistake would give

    def check(self, case: Case) -> str:
        """What is wrong on this rank; nothing, where all is well. All ranks make the same calls.

        Raises:
            ciuic.CiuicError: Of a call. The group has ended, or no other rank made it.
        """
        return _CHECKS[case.operation](self, case)


def _wrong(group: Group, dtype: str, pairs: Iterable[tuple[str, Any, bytes]]) -> str:
    """The first of arrays that is not as it should be."""
    for what, array, expected in pairs:
        difference = first_difference(group.maker.data(array), expected, dtype)
        if difference:
            return f"{what}: {difference}" if what else difference
    return ""


def _op(case: Case) -> ReduceOp:
    return ReduceOp[case.op.upper()]


def _uneven(group: Group, count: int) -> list[int]:
    """Elements for each rank: some, none, and few."""
    return [(count, 0, count // 2, 1)[rank % 4] for rank in range(group.size)]


def _bytes(case: Case, count: int | None = None) -> int:
    return (case.count if count is None else count) * itemsize(case.dtype)


# ---- reductions ----


def _all_reduce(group: Group, case: Case) -> str:
    mine = reduced_input(case.dtype, group.rank, group.size, 0, case.count)
    x = group.maker.array(mine, case.dtype)
    ciuic.all_reduce(x, _op(case), group.context)
    right = reduced(case.dtype, case.op, group.size, 0, case.count)
    return _wrong(group, case.dtype, [("", x, right)])


def _reduce(group: Group, case: Case) -> str:
    mine = reduced_input(case.dtype, group.rank, group.size, 0, case.count)
    x = group.maker.array(mine, case.dtype)
    result = ciuic.reduce(x, group.root, _op(case), group.context)
    pairs = [("the input", x, mine)]
    if group.rank == group.root:
        right = reduced(case.dtype, case.op, group.size, 0, case.count)
        pairs.append(("", result, right))
    elif result is not None:
        return "a rank that is not dst got a result"
    return _wrong(group, case.dtype, pairs)


def _reduce_scatter(group: Group, case: Case) -> str:
    return _reduce_scattered(group, case, [case.count] * group.size)


def _reduce_scatter_v(group: Group, case: Case) -> str:
    return _reduce_scattered(group, case, _uneven(group, case.count))


def _reduce_scattered(group: Group, case: Case, counts: list[int]) -> str:
    mine = reduced_input(case.dtype, group.rank, group.size, 0, sum(counts))
    x = group.maker.array(mine, case.dtype)
    if case.operation == "reduce_scatter":
        result = ciuic.reduce_scatter(x, _op(case), group.context)
    else:
        result = ciuic.reduce_scatter_v(x, _op(case), group.context, counts=counts)
    begin = sum(counts[: group.rank])
    right = reduced(case.dtype, case.op, group.size, begin, counts[group.rank])
    return _wrong(group, case.dtype, [("", result, right), ("the input", x, mine)])


# ---- movements ----


def _of_each(
    group: Group, case: Case, arrays: Sequence[Any], counts: Sequence[int], receiver: int
) -> str:
    """Compares what came from each rank, who sent it to ``receiver``."""
    if len(arrays) != group.size:
        return f"{len(arrays)} arrays came, not {group.size}"
    return _wrong(
        group,
        case.dtype,
        (
            (f"from rank {r}", arrays[r], moved(case.dtype, r, receiver, _bytes(case, counts[r])))
            for r in range(group.size)
        ),
    )


def _broadcast(group: Group, case: Case) -> str:
    right = moved(case.dtype, group.root, _TO_ALL, _bytes(case))
    if group.rank == group.root:
        x = group.maker.array(right, case.dtype)
    else:
        x = group.maker.empty(case.count, case.dtype)
    ciuic.broadcast(x, group.root, group.context)
    return _wrong(group, case.dtype, [("", x, right)])


def _all_gather(group: Group, case: Case) -> str:
    x = group.maker.array(moved(case.dtype, group.rank, _TO_ALL, _bytes(case)), case.dtype)
    return _of_each(
        group, case, ciuic.all_gather(x, group.context), [case.count] * group.size, _TO_ALL
    )


def _all_gather_v(group: Group, case: Case) -> str:
    counts = _uneven(group, case.count)
    mine = moved(case.dtype, group.rank, _TO_ALL, _bytes(case, counts[group.rank]))
    x = group.maker.array(mine, case.dtype)
    result = ciuic.all_gather_v(x, _known(counts, case), group.context)
    return _of_each(group, case, result, counts, _TO_ALL)


def _known(counts: list[int], case: Case) -> list[int] | None:
    """Ranks ask each other in every other case."""
    return counts if case.count % 2 == 1 and itemsize(case.dtype) % 2 == 0 else None


def _gather(group: Group, case: Case) -> str:
    x = group.maker.array(moved(case.dtype, group.rank, _TO_ALL, _bytes(case)), case.dtype)
    result = ciuic.gather(x, group.root, group.context)
    return _on_root(group, case, result, [case.count] * group.size)


def _gather_v(group: Group, case: Case) -> str:
    counts = _uneven(group, case.count)
    mine = moved(case.dtype, group.rank, _TO_ALL, _bytes(case, counts[group.rank]))
    x = group.maker.array(mine, case.dtype)
    result = ciuic.gather_v(x, group.root, _known(counts, case), group.context)
    return _on_root(group, case, result, counts)


def _on_root(group: Group, case: Case, result: list[Any] | None, counts: Sequence[int]) -> str:
    if group.rank == group.root:
        return _of_each(group, case, result or [], counts, _TO_ALL)
    return "" if result is None else "a rank that is not dst got a result"


def _scatter(group: Group, case: Case) -> str:
    return _scattered(group, case, ciuic.scatter, [case.count] * group.size)


def _scatter_v(group: Group, case: Case) -> str:
    return _scattered(group, case, ciuic.scatter_v, _uneven(group, case.count))


def _scattered(group: Group, case: Case, call: Callable[..., Any], counts: list[int]) -> str:
    out = group.maker.empty(counts[group.rank], case.dtype)
    xs = None
    if group.rank == group.root:
        every = [moved(case.dtype, group.root, r, _bytes(case, counts[r])) for r in _ranks(group)]
        xs = [group.maker.array(data, case.dtype) for data in every]
    call(out, xs, group.root, group.context)
    right = moved(case.dtype, group.root, group.rank, _bytes(case, counts[group.rank]))
    return _wrong(group, case.dtype, [("", out, right)])


def _ranks(group: Group) -> range:
    return range(group.size)


def _all_to_all(group: Group, case: Case) -> str:
    every = [moved(case.dtype, group.rank, r, _bytes(case)) for r in _ranks(group)]
    result = ciuic.all_to_all(group.maker.array(b"".join(every), case.dtype), group.context)
    counts = [case.count] * group.size
    return _of_each(group, case, _cut(result, counts), counts, group.rank)


def _all_to_all_v(group: Group, case: Case) -> str:
    def rows(sender: int, receiver: int) -> int:
        return _uneven(group, case.count)[(sender + receiver) % group.size]

    given = [rows(group.rank, r) for r in _ranks(group)]
    got = [rows(r, group.rank) for r in _ranks(group)]
    every = [moved(case.dtype, group.rank, r, _bytes(case, given[r])) for r in _ranks(group)]
    x = group.maker.array(b"".join(every), case.dtype)
    result = ciuic.all_to_all_v(x, given, _known(got, case), group.context)
    return _of_each(group, case, _cut(result, got), got, group.rank)


def _cut(x: Any, counts: Sequence[int]) -> list[Any]:
    begins = [sum(counts[:r]) for r in range(len(counts))]
    return [x[begin : begin + count] for begin, count in zip(begins, counts, strict=True)]


# ---- messages, and several calls as one ----


def _send_recv(group: Group, case: Case) -> str:
    """Round a ring, all at once."""
    following, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    mine = moved(case.dtype, group.rank, following, _bytes(case))
    x = group.maker.array(mine, case.dtype)
    out = group.maker.empty(case.count, case.dtype)
    sent = ciuic.send_async(x, following, _TAG, group.context)
    source = ciuic.recv(out, before, _TAG, group.context)
    sent.wait()
    if source != before:
        return f"the message came from rank {source}, not {before}"
    right = moved(case.dtype, before, group.rank, _bytes(case))
    return _wrong(group, case.dtype, [("", out, right)])


def _recv_any(group: Group, case: Case) -> str:
    """The root takes one message of each other rank, in whatever order they come."""
    # Of this case alone: a rank that has sent is at the next one while others still send.
    tag = zlib.crc32(case.name.encode()) % ciuic.MAX_TAG
    if group.rank != group.root:
        mine = moved(case.dtype, group.rank, _TO_ALL, _bytes(case))
        ciuic.send(group.maker.array(mine, case.dtype), group.root, tag, group.context)
        return ""
    sources, wrong = [], ""
    for _ in range(group.size - 1):  # all of them, or the next case would get what is left
        out = group.maker.empty(case.count, case.dtype)
        source = ciuic.recv(out, None, tag, group.context)
        sources.append(source)
        right = moved(case.dtype, source, _TO_ALL, _bytes(case))
        wrong = wrong or _wrong(group, case.dtype, [(f"from rank {source}", out, right)])
    others = [r for r in _ranks(group) if r != group.root]
    return wrong if sorted(sources) == others else f"messages came from {sources}"


def _coalesced(group: Group, case: Case) -> str:
    """A batch: a message to each other rank, one from each, and a collective operation."""
    context, dtype = group.context, case.dtype
    others = [r for r in _ranks(group) if r != group.rank]
    outs = {r: group.maker.empty(case.count, dtype) for r in others}
    inputs = {
        r: group.maker.array(moved(dtype, group.rank, r, _bytes(case)), dtype) for r in others
    }
    x = group.maker.array(moved(dtype, group.rank, _TO_ALL, _bytes(case)), dtype)
    with ciuic.coalesce(context) as batch:
        for r in others:
            ciuic.send_async(inputs[r], r, _TAG, context)
        for r in others:
            ciuic.recv_async(outs[r], r, _TAG, context)
        gathered = ciuic.all_gather_async(x, context)
    batch.wait()
    wrong = _wrong(
        group,
        dtype,
        (
            (f"the message of rank {r}", out, moved(dtype, r, group.rank, _bytes(case)))
            for r, out in outs.items()
        ),
    )
    return wrong or _of_each(group, case, gathered.wait(), [case.count] * group.size, _TO_ALL)


def _persistent(group: Group, case: Case) -> str:
    """Prepared once, and started several times, on other values each time."""
    x = group.maker.empty(case.count, case.dtype)
    y = group.maker.empty(case.count, case.dtype)
    with ciuic.persistent(group.context) as step:
        ciuic.all_reduce_async(x, ReduceOp.SUM, group.context)
        ciuic.broadcast_async(y, group.root, group.context)
    first_wrong = ""
    for start in range(_STARTS):  # as often as the other ranks, whatever comes
        begin = 5 * start
        mine = reduced_input(case.dtype, group.rank, group.size, begin, case.count)
        group.maker.overwrite(x, mine)
        group.maker.overwrite(y, moved(case.dtype, group.rank, start, _bytes(case)))
        step.run()
        pairs = [
            ("sum", x, reduced(case.dtype, "sum", group.size, begin, case.count)),
            ("broadcast", y, moved(case.dtype, group.root, start, _bytes(case))),
        ]
        wrong = _wrong(group, case.dtype, pairs)
        first_wrong = first_wrong or (f"start {start}: {wrong}" if wrong else "")
    return first_wrong


def _subgroup(group: Group, case: Case) -> str:
    """Its context is the group's; some ranks are not in it, and its order is another."""
    mine = reduced_input(case.dtype, group.rank, group.size, 0, case.count)
    x = group.maker.array(mine, case.dtype)
    ciuic.all_reduce(x, ReduceOp.SUM, group.context)
    right = reduced(case.dtype, "sum", group.size, 0, case.count)
    return _wrong(group, case.dtype, [("sum", x, right)]) or _all_gather(group, case)


_CHECKS: dict[str, Callable[[Group, Case], str]] = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_v": _reduce_scatter_v,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "all_gather_v": _all_gather_v,
    "gather": _gather,
    "gather_v": _gather_v,
    "scatter": _scatter,
    "scatter_v": _scatter_v,
    "all_to_all": _all_to_all,
    "all_to_all_v": _all_to_all_v,
    "send_recv": _send_recv,
    "recv_any": _recv_any,
    "coalesced": _coalesced,
    "persistent": _persistent,
    "subgroup": _subgroup,
}
