# SPDX-License-Identifier: Apache-2.0
"""Which host each rank of a group is on, as src/plan/layout.h has it."""

from __future__ import annotations

from collections.abc import Sequence

from ciuic import _native
from ciuic.errors import InvalidArgumentError


class Layout:
    """Which host each rank is on. Hosts are numbered in the order of their lowest rank.

    >>> layout = Layout.parse("3+2")
    >>> layout.size, layout.hosts, layout.ranks_on(1), layout.local_index(4)
    (5, 2, (3, 4), 1)

    Args:
        host_of: For each rank any number that ranks of one host share.

    Raises:
        ciuic.InvalidArgumentError: No ranks, or a host that is no whole number from 0 on.
    """

    __slots__ = ("_host_of", "_local_index", "_ranks_on")

    def __init__(self, host_of: Sequence[int]) -> None:
        given = list(host_of)
        if not given or any(type(host) is not int or host < 0 for host in given):
            raise InvalidArgumentError(f"{given} is no layout: give the host of each rank")
        numbers: dict[int, int] = {}
        self._host_of = tuple(numbers.setdefault(host, len(numbers)) for host in given)
        ranks_on: list[list[int]] = [[] for _ in numbers]
        local_index = []
        for rank, host in enumerate(self._host_of):
            local_index.append(len(ranks_on[host]))
            ranks_on[host].append(rank)
        self._local_index = tuple(local_index)
        self._ranks_on = tuple(tuple(ranks) for ranks in ranks_on)

    @classmethod
    def parse(cls, text: str) -> Layout:
        """ "5": one host of five ranks. "4x2": four hosts of two. "3+2". "0,1,0,1": each host."""
        return cls(_native.parse_layout(text))

    @property
    def size(self) -> int:
        """Ranks."""
        return len(self._host_of)

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return len(self._ranks_on)

    def host_of(self, rank: int) -> int:
        """The host that ``rank`` is on."""
        return self._host_of[rank]

    def local_index(self, rank: int) -> int:
        """How many lower ranks are on the host of ``rank``."""
        return self._local_index[rank]

    def ranks_on(self, host: int) -> tuple[int, ...]:
        """Ascending."""
        return self._ranks_on[host]

    def same_host(self, a: int, b: int) -> bool:
        return self._host_of[a] == self._host_of[b]

    @property
    def text(self) -> str:
        """As :meth:`parse` reads it."""
        if list(self._host_of) != sorted(self._host_of):
            return ",".join(str(host) for host in self._host_of)
        counts = [len(ranks) for ranks in self._ranks_on]
        if len(counts) == 1:
            return str(counts[0])
        if min(counts) == max(counts):
            return f"{len(counts)}x{counts[0]}"
        return "+".join(str(count) for count in counts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._host_of == other._host_of

    def __hash__(self) -> int:
        return hash(self._host_of)

    def __repr__(self) -> str:
        return f"Layout.parse({self.text!r})"


def as_layout(layout: Layout | str | int) -> Layout:
    """A layout from itself, its text, or a number of ranks on one host."""
    if isinstance(layout, Layout):
        return layout
    if isinstance(layout, (str, int)) and not isinstance(layout, bool):
        return Layout.parse(str(layout))
    raise InvalidArgumentError(f"{layout!r} is no layout; give a Layout, '2x2', or 4 for one host")
