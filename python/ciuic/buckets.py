# SPDX-License-Identifier: Apache-2.0
"""Many arrays as few: packed into flat buffers of one dtype, reduced, and split again.

All ranks make the same buckets from the same arrays: by dtype in the order of first appearance,
then in the order given, each bucket full before the next one starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ciuic import _native, buffers
from ciuic.buffers import Buffer, Place
from ciuic.dtypes import (
    CODE_OF_NAME,
    NAME_OF_CODE,
    SIZE_OF_CODE,
    ReduceOp,
    device_in,
    dtype_in,
)
from ciuic.errors import InvalidArgumentError

BUCKET_BYTES = 16 << 20
"""A bucket's size at most, save that of an array that is larger by itself and travels uncopied."""


class Bucket:
    """Arrays of one dtype that travel as one.

    Attributes:
        place: Where the core finds the elements: the scratch memory, or the only array itself.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        code = places[0][2]
        self._scratch: _native.Scratch | _native.CudaScratch | None = None
        itemsize = SIZE_OF_CODE[dtype_in(code)]
        begin = _begin_of(places, itemsize)
        if begin is not None:
            self.place = (begin, sum([place[1] for place in places]), code)
            return
        self._places = [(address, count * itemsize) for address, count, _ in places]
        nbytes = max(1, sum([size for _, size in self._places]))
        device = device_in(code)
        self._scratch = (
            _native.Scratch(nbytes) if device < 0 else _native.CudaScratch(nbytes, device)
        )
        self._scratch.pack(self._places)
        self.place = (self._scratch.address, sum([place[1] for place in places]), code)

    @property
    def is_copy(self) -> bool:
        """Whether the elements travel from, and to, memory other than the caller's."""
        return self._scratch is not None

    def unpack(self) -> None:
        """Splits the result again."""
        if self._scratch is not None:
            self._scratch.unpack(self._places)
            self._scratch = None


def _begin_of(places: Sequence[Place], itemsize: int) -> int | None:
    """Where they begin, if they lie in memory as they travel, as the rows of one array do."""
    filled = [place for place in places if place[1] > 0] or places[:1]
    begin = address = filled[0][0]
    for start, count, _ in filled:
        if start != address:
            return None
        address += count * itemsize
    return begin


class Merged:
    """The arrays of one call.

    Attributes:
        groups: Their places, bucket by bucket; :class:`Bucket` packs one.
    """

    def __init__(self, arrays: Sequence[Any], mixed_dtypes: bool, moves: bool = False) -> None:
        self._buffers: list[Buffer] = []  # of arrays that are no plain memory
        self._mixed_dtypes = mixed_dtypes
        places = list(dict.fromkeys(self._places(arrays, moves)))  # two views of one are one, too
        _check_device([device_in(place[2]) for place in places])
        codes = list(dict.fromkeys([place[2] for place in places]))
        self.groups: list[list[Place]] = []
        for code in codes:
            self._divide(
                [place for place in places if place[2] == code] if len(codes) > 1 else places
            )

    def _places(self, arrays: Sequence[Any], moves: bool) -> list[Place]:
        slow = []
        places: list[Place | None] = []
        direct_of = buffers.direct_place.get
        for x in arrays:
            direct = direct_of(type(x))
            place = direct(x) if direct is not None else None
            if place is None:
                slow.append((len(places), Buffer(x, writes=True, moves=moves)))
            places.append(place)
        if not self._mixed_dtypes:
            _check_alike(places, dict(slow))
        # Copies are made when every array is known to be good.
        for index, buffer in slow:
            places[index] = buffer.place()
            self._buffers.append(buffer)
        return places  # type: ignore[return-value]

    def _divide(self, places: list[Place]) -> None:
        limit = BUCKET_BYTES // SIZE_OF_CODE[dtype_in(places[0][2])]
        room = 0
        for place in places:
            if not self.groups or place[1] > room or self.groups[-1][0][2] != place[2]:
                self.groups.append([])
                room = limit
            self.groups[-1].append(place)
            room -= place[1]

    def check_apart(self) -> None:
        """Raises ValueError where arrays of different buckets share memory: which of them is
        reduced first, and so whether the other one is reduced twice, would be chance."""
        if len(self.groups) < 2:
            return
        spans = sorted(
            (place[0], place[0] + place[1] * SIZE_OF_CODE[dtype_in(place[2])], number)
            for number, group in enumerate(self.groups)
            for place in group
            if place[1] > 0
        )
        reach, owner = 0, -1
        for begin, end, number in spans:
            if begin < reach and number != owner:
                raise InvalidArgumentError(
                    "the arrays of one call overlap in part; give each element once. Nothing was "
                    "sent."
                )
            if end > reach:
                reach, owner = end, number

    @property
    def is_copy(self) -> bool:
        """Whether some array travels from, and to, memory other than the caller's."""
        return any(buffer.is_copy for buffer in self._buffers)

    def finish(self) -> None:
        """Copies back what was reduced in a copy."""
        for buffer in self._buffers:
            buffer.finish()


def _check_alike(places: Sequence[Place | None], slow: dict[int, Buffer]) -> None:
    """Raises ValueError where the arrays are not of one dtype."""
    names = dict.fromkeys(
        [
            slow[index].dtype if place is None else NAME_OF_CODE[dtype_in(place[2])]
            for index, place in enumerate(places)
        ]
    )
    if len(names) > 1:
        raise InvalidArgumentError(
            f"the arrays of one call are of different dtypes ({', '.join(names)}); make one call "
            "for each. Nothing was sent."
        )


def _check_device(devices: Sequence[int]) -> None:
    """Raises ValueError where they are not one."""
    names = dict.fromkeys(["cpu" if device < 0 else f"cuda:{device}" for device in devices])
    if len(names) > 1:
        raise InvalidArgumentError(
            f"the arrays of one call are on different devices ({', '.join(names)}); make one call "
            "for each. Nothing was sent."
        )


def unique(arrays: Sequence[Any]) -> list[Any]:
    """The arrays, each object once: one that is named twice is reduced once."""
    return list({id(x): x for x in arrays}.values())


class Gradients:
    """The gradients of parameters, where a rank may lack some.

    The ranks tell each other first which they have (two bytes a parameter, one blocking
    all-reduce): one that no rank has is skipped, one that some ranks lack counts as zeros there.

    Attributes:
        arrays: The gradients to reduce, in the order of the parameters.
    """

    def __init__(self, parameters: Sequence[Any], communicator: Any, timeout_ms: int) -> None:
        if buffers.parameters_among(parameters) != len(parameters):
            raise InvalidArgumentError(
                "parameters and other arrays in one call; make one call for each. Nothing was sent."
            )
        codes = [0 if p.grad is None else 1 + Buffer(p.grad, writes=True).code for p in parameters]
        highest, lowest = _exchange(codes, communicator, timeout_ms)
        self._missing: list[tuple[Any, Any]] = []
        self.arrays = []
        for index, parameter in enumerate(parameters):
            if highest[index] == 0:
                continue
            if highest[index] != lowest[index]:
                raise InvalidArgumentError(
                    f"the gradient of parameter {index} is {NAME_OF_CODE[highest[index] - 1]} on "
                    f"one rank and {NAME_OF_CODE[lowest[index] - 1]} on another. No gradient was "
                    "sent."
                )
            gradient = parameter.grad
            if gradient is None:
                gradient = _zeros(parameter, NAME_OF_CODE[highest[index] - 1])
                self._missing.append((parameter, gradient))
            self.arrays.append(gradient)

    def finish(self) -> None:
        """Gives the parameters that had no gradient here what came from the others."""
        for parameter, gradient in self._missing:
            parameter.grad = gradient


def _exchange(codes: list[int], communicator: Any, timeout_ms: int) -> tuple[bytes, bytes]:
    """Highest and lowest of all ranks' codes that are not 0."""
    count = len(codes)
    told = bytearray(codes + [255 - code if code else 0 for code in codes])
    place = (_native.address_of(told, True), 2 * count)
    call = _native.Call(
        _native.operation_codes["all_reduce"],
        place,
        place,
        CODE_OF_NAME["uint8"],
        int(ReduceOp.MAX),
    )
    communicator.submit((call,), timeout_ms, None, of_library=True)
    return bytes(told[:count]), bytes(255 - code for code in told[count:])


def _zeros(parameter: Any, dtype: str) -> Any:
    import torch

    memory_format = torch.preserve_format
    return torch.zeros_like(
        parameter, dtype=getattr(torch, dtype), requires_grad=False, memory_format=memory_format
    )


def finisher(packed: Sequence[Bucket], *after: Any) -> Callable[[], None]:
    """What splits the results of a call again, and then finishes ``after``."""

    def finish() -> None:
        for bucket in packed:
            bucket.unpack()
        for part in after:
            part.finish()

    return finish
