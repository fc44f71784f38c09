# SPDX-License-Identifier: Apache-2.0
"""A rank that does what it is told: a JSON line on its standard input is a script, to which it
answers by a line: "ok", or what went wrong. All ranks get the same scripts.

A script has ``groups``, lists of ranks; and ``blocks``, each with a ``mode`` and ``steps``
(script_steps.py), of which each names its ``group``:

    blocking    one after the other
    async       all are started, then waited for; each rank has an order of its own, among groups
                and of waiting
    coalesce    the steps of a group together
    persistent  likewise, three times with other values
"""

import json
import random
import sys
import traceback
from typing import Any

from ciuic import CiuicContext
from script_steps import Step

MOST_GROUPS = 12
ROUNDS = 3


class Groups:
    """Groups of the world's ranks, which outlive a script. All ranks know of the same ones."""

    def __init__(self, world: CiuicContext) -> None:
        self._world = world
        self._made: dict[tuple[int, ...], CiuicContext | None] = {}

    def of(self, members: list[int]) -> CiuicContext | None:
        """The group; None where this rank is none of its members."""
        key = tuple(members)
        group = self._made.pop(key, None)
        if group is None and self._world.rank in members:
            group = self._world.subgroup(members)
        self._made[key] = group  # the last one used
        while len(self._made) > MOST_GROUPS:
            oldest = self._made.pop(next(iter(self._made)))
            if oldest is not None:
                oldest.close()
        return group


def starts(step: Step) -> list[Any]:
    return [
        getattr(step.ctx, name + "_async")(*arguments, **named)
        for name, arguments, named in step.calls
    ]


def run_blocking(steps: list[Step]) -> None:
    for step in steps:
        step.fill(0)
        if step.spec["op"] == "messages":  # a rank cannot send before it may receive
            step.check([handle.wait() for handle in starts(step)])
            continue
        ((name, arguments, named),) = step.calls
        step.check([getattr(step.ctx, name)(*arguments, **named)])


def interleaved(steps: list[Step], order: random.Random) -> list[Step]:
    """Those of each group in their order, the groups in any."""
    tracks: dict[int, list[Step]] = {}
    for step in steps:
        tracks.setdefault(step.spec["group"], []).append(step)
    turns = [track for track in tracks.values() for _ in track]
    order.shuffle(turns)
    return [track.pop(0) for track in turns]


def run_async(steps: list[Step], order: random.Random) -> None:
    started = []
    for step in interleaved(steps, order):
        step.fill(0)
        started.append((step, starts(step)))
    order.shuffle(started)
    for step, handles in started:
        step.check([handle.wait() for handle in handles])


def by_group(steps: list[Step], order: random.Random) -> list[list[Step]]:
    tracks: dict[int, list[Step]] = {}
    for step in steps:
        tracks.setdefault(step.spec["group"], []).append(step)
    groups = list(tracks.values())
    order.shuffle(groups)
    return groups


def run_coalesced(steps: list[Step], order: random.Random) -> None:
    ended = []
    for track in by_group(steps, order):
        with track[0].ctx.coalesce() as group:
            for step in track:
                step.fill(0)
                ended.append((group, step, starts(step)))
    order.shuffle(ended)
    for number, (group, step, handles) in enumerate(ended):
        if number % 2:
            group.wait()
        step.check([handle.wait() for handle in handles])


def run_persistent(steps: list[Step], order: random.Random) -> None:
    prepared = []
    for track in by_group(steps, order):
        with track[0].ctx.persistent() as calls:
            handles = [starts(step) for step in track]
        prepared.append((calls, track, handles))
    for number in range(ROUNDS):
        order.shuffle(prepared)
        for _, track, _ in prepared:
            for step in track:
                step.fill(number)
        works = [calls.start() for calls, _, _ in prepared]
        for work, (_, track, handles) in zip(works, prepared, strict=True):
            work.wait()
            for step, each in zip(track, handles, strict=True):
                step.check([handle.wait() for handle in each])


def run(script: dict[str, Any], groups: Groups, rank: int) -> None:
    contexts = [groups.of(members) for members in script["groups"]]
    order = random.Random(f"{script['seed']} {rank}")
    for block in script["blocks"]:
        mode = block["mode"]
        steps = []
        for spec in block["steps"]:
            context = contexts[spec["group"]]
            if context is not None:
                steps.append(Step(context, spec, is_plain=mode == "persistent"))
        if mode == "blocking":
            run_blocking(steps)
        elif mode == "async":
            run_async(steps, order)
        elif mode == "coalesce":
            run_coalesced(steps, order)
        else:
            run_persistent(steps, order)


def main() -> None:
    with CiuicContext(timeout_s=20) as world:
        groups = Groups(world)
        for line in sys.stdin:
            try:
                run(json.loads(line), groups, world.rank)
            except BaseException:
                print(json.dumps(traceback.format_exc()), flush=True)
                return
            print('"ok"', flush=True)


main()
