# SPDX-License-Identifier: Apache-2.0
"""One rank's plan, in the words of src/plan/plan.h, which says what a plan means.

Steps run concurrently, save for two orders: a step that touches a block which an earlier step of
the list touches, one of them writing, comes after it; and messages between two ranks on one lane go
in the order of the list, so that the k-th send to a peer meets the peer's k-th receive from here.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ciuic.errors import InvalidArgumentError

SPACES = ("input", "output", "scratch")
UNITS = ("split", "each")


def _number(what: str, value: Any, least: int | None = 0) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise InvalidArgumentError(f"{what}={value!r} is no whole number") from None
    if least is not None and number < least:
        raise InvalidArgumentError(f"{what}={number} is less than {least}")
    return number


def _truth(what: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgumentError(f"{what}={value!r} is neither True nor False")
    return value


@dataclass(frozen=True)
class BlockRange:
    """Blocks ``first`` to ``first + count`` of a space. No blocks: a message without bytes."""

    space: str
    first: int
    count: int

    def __post_init__(self) -> None:
        if self.space not in SPACES:
            raise InvalidArgumentError(f"space={self.space!r}; there are {', '.join(SPACES)}")
        _number("first", self.first)
        _number("count", self.count)

    def part(self, first: int, count: int) -> BlockRange:
        """Blocks ``first`` to ``first + count`` of these."""
        return BlockRange(self.space, self.first + first, count)

    def _json(self) -> list[Any]:
        return [self.space, operator.index(self.first), operator.index(self.count)]


def input(block: int) -> BlockRange:
    """A block of what this rank gives. Never written."""
    return BlockRange("input", block, 1)


def output(block: int) -> BlockRange:
    """A block of what this rank gets."""
    return BlockRange("output", block, 1)


def scratch(block: int) -> BlockRange:
    """A block of memory that the operation has meanwhile."""
    return BlockRange("scratch", block, 1)


def inputs(first: int, count: int) -> BlockRange:
    return BlockRange("input", first, count)


def outputs(first: int, count: int) -> BlockRange:
    return BlockRange("output", first, count)


def scratches(first: int, count: int) -> BlockRange:
    return BlockRange("scratch", first, count)


def nothing() -> BlockRange:
    """No blocks."""
    return BlockRange("output", 0, 0)


@dataclass(frozen=True)
class Partition:
    """How a space is cut into blocks, given the call's ``count`` of elements.

    Args:
        blocks: How many.
        unit: ``"split"``: parts of ``count`` elements in all, as even as can be. ``"each"``: blocks
            of ``count`` elements each.
        first: Of ``"each"``: block i is that of rank ``first + i``, modulo the ranks.
        owners: Of scratch of ``"each"``: whose each block is, instead.
    """

    blocks: int
    unit: str = "split"
    first: int = 0
    owners: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _number("blocks", self.blocks)
        _number("first", self.first)
        if self.unit not in UNITS:
            raise InvalidArgumentError(f"unit={self.unit!r}; there are {', '.join(UNITS)}")
        for owner in self.owners:
            _number("owner", owner)

    def _json(self) -> dict[str, Any]:
        json: dict[str, Any] = {"blocks": operator.index(self.blocks), "unit": self.unit}
        if self.first:
            json["first"] = operator.index(self.first)
        if self.owners:
            json["owners"] = [operator.index(owner) for owner in self.owners]
        return json


class Plan:
    """What one rank does in one collective operation. Add its steps in an order that is right if
    they are done one after another.

    Args:
        input, output, scratch: How each space is cut into blocks: a :class:`Partition`, or a number
            of blocks of which all together have the call's elements.
        input_offset: In place, block i of the input is the same memory as block
            ``i + input_offset`` of the output.
        allows_in_place: Whether input and output may be the same memory; every operation but
            all_to_all demands it.

    Raises:
        ciuic.InvalidArgumentError: From here on, and from the steps: a value that no plan can have.
            What is wrong of all ranks' plans together, :func:`ciuic.plan.prove` says.
    """

    def __init__(
        self,
        input: Partition | int = 0,
        output: Partition | int = 0,
        scratch: Partition | int = 0,
        *,
        input_offset: int = 0,
        allows_in_place: bool = True,
    ) -> None:
        self.partitions = {
            space: part if isinstance(part, Partition) else Partition(_number(space, part))
            for space, part in zip(SPACES, (input, output, scratch), strict=True)
        }
        self.input_offset = _number("input_offset", input_offset, least=None)
        self.allows_in_place = _truth("allows_in_place", allows_in_place)
        self.steps: list[dict[str, Any]] = []

    def send(self, peers: int | Sequence[int], source: BlockRange, lane: int = 0) -> None:
        """``source`` goes to all of ``peers``, one message each, the same bytes."""
        self._add("send", _peers(peers), lane, source=source)

    def receive(self, peer: int, target: BlockRange, lane: int = 0) -> None:
        """One message from ``peer`` overwrites ``target``."""
        self._add("receive", [_number("peer", peer)], lane, target=target)

    def reduce(
        self,
        peers: int | Sequence[int],
        own_place: int,
        own: BlockRange,
        target: BlockRange,
        lane: int = 0,
        *,
        received_raw: bool = False,
        final: bool = False,
    ) -> None:
        """``target`` becomes ``own`` and one message of each of ``peers``, reduced in rank order.

        Args:
            peers: Where the messages come from.
            own_place: The operands from left to right are the peers', with this rank's own before
                peer number ``own_place``: 0 is first, ``len(peers)`` last.
            own, target: Ranges of one size. May be the same.
            lane: Of the messages.
            received_raw: Whether the messages are peers' input as it was, not yet reduced.
            final: Whether the target is complete by then: all ranks' contributions are in it.
        """
        self._add("reduce", _peers(peers), lane, source=own, target=target)
        step = self.steps[-1]
        if place := _number("own_place", own_place):
            step["own_place"] = place
        if _truth("received_raw", received_raw):
            step["received_raw"] = True
        if _truth("final", final):
            step["final"] = True

    def copy(self, source: BlockRange, target: BlockRange) -> None:
        """``target`` becomes ``source``, on this rank."""
        self._add("copy", None, 0, source=source, target=target)

    def as_dict(self) -> dict[str, Any]:
        """What a plan file has for a rank (src/plan/plan_json.h), without the algorithm's name."""
        json: dict[str, Any] = {"input_offset": self.input_offset}
        if not self.allows_in_place:
            json["allows_in_place"] = False
        json["partitions"] = {space: part._json() for space, part in self.partitions.items()}
        json["steps"] = [dict(step) for step in self.steps]
        return json

    def _add(self, kind: str, peers: list[int] | None, lane: int, **ranges: BlockRange) -> None:
        step: dict[str, Any] = {"kind": kind}
        if peers is not None:
            step["peers"] = peers
        if lane := _number("lane", lane):
            step["lane"] = lane
        for name, blocks in ranges.items():
            if not isinstance(blocks, BlockRange):
                raise InvalidArgumentError(
                    f"{kind}: {name}={blocks!r} is no range of blocks; say input(0), outputs(0, 2)"
                )
            step[name] = blocks._json()
        self.steps.append(step)


def _peers(peers: int | Sequence[int]) -> list[int]:
    given = list(peers) if isinstance(peers, Sequence) else [peers]
    return sorted(_number("peer", peer) for peer in given)
