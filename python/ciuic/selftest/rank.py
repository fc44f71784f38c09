# SPDX-License-Identifier: Apache-2.0
"""One rank of a transport: ``python -m ciuic.selftest.rank PLAN``.

PLAN is a JSON file: which cases, what the group must be like, and the file of the ranks' places.
Each rank writes there the number of the case that it is at, for the parent to show, and to know
where a rank was that crashed. The last line of its output is a JSON object with all else.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

_PLACE = struct.Struct("=qq")


def read_place(file: int, rank: int) -> tuple[int, int]:
    """The case that a rank is at, -1 before the first one; and how many it has found wrong."""
    at, wrong = _PLACE.unpack(os.pread(file, _PLACE.size, rank * _PLACE.size))
    return at, wrong


def write_place(file: int, rank: int, at: int, wrong: int) -> None:
    """What :func:`read_place` reads."""
    os.pwrite(file, _PLACE.pack(at, wrong), rank * _PLACE.size)


def main(path: str) -> int:
    plan = json.loads(Path(path).read_text(encoding="utf-8"))
    rank = int(os.environ["RANK"])
    os.environ.update(plan["variables_of_rank"][rank])
    run = _Run(plan, rank)
    try:
        run.go()
    except Exception as error:
        run.report["error"] = {
            "type": type(error).__name__,
            "text": str(error) or type(error).__name__,
            "at": run.at,
        }
    sys.stdout.write("\n" + json.dumps(run.report) + "\n")
    sys.stdout.flush()
    return 1 if "error" in run.report else 0


class _Run:
    def __init__(self, plan: dict[str, Any], rank: int) -> None:
        from ciuic.selftest.cases import Case

        self.at = -1  # number of the case; before the first one the group is being made
        self.report: dict[str, Any] = {"rank": rank, "failures": [], "done": 0, "seconds": {}}
        self._plan = plan
        self._rank = rank
        self._cases = [Case(*words) for words in plan["cases"]]
        self._places = os.open(plan["places"], os.O_RDWR)

    def go(self) -> None:
        from ciuic import CiuicContext
        from ciuic.selftest.memory import Maker
        from ciuic.selftest.operations import Group

        context = CiuicContext(timeout_s=self._plan["timeout_s"])
        maker = Maker()  # imports NumPy, which is in vain where there is no such transport
        self.report["arrays"] = maker.described
        groups = {context.world_size: Group(context, maker)}
        wanted = {case.ranks for case in self._cases}
        if 2 in wanted:  # pairs; where there are two hosts, one rank of each
            pair = context.split(self._rank % 2)
            assert pair is not None
            groups[2] = Group(pair, maker)
        some = self._plan["subgroup"]
        if len(some) in wanted and self._rank in some:
            groups[len(some)] = Group(context.subgroup(some), maker)
        for index, case in enumerate(self._cases):
            self._begin(index)
            group = groups.get(case.ranks)
            began = time.perf_counter()
            text = "" if group is None else self._check(group, case, index)
            taken = time.perf_counter() - began
            seconds = self.report["seconds"]
            seconds[case.operation] = seconds.get(case.operation, 0.0) + taken
            self.report["done"] += 1
            if text:
                self.report["failures"].append({"case": case.name, "text": text})
                self._begin(index)
        self._begin(len(self._cases))
        context.barrier()  # nobody leaves while another one still needs him
        for group in groups.values():
            group.context.close()

    def _begin(self, index: int) -> None:
        self.at = index
        write_place(self._places, self._rank, index, len(self.report["failures"]))

    def _check(self, group: Any, case: Any, index: int) -> str:
        if case.operation == "join":
            return self._check_join(group.context)
        if case.operation == "barrier":
            return self._check_barrier(group, index)
        return str(group.check(case))

    def _check_join(self, context: Any) -> str:
        """Whether the group is what was demanded, not something else that works, too."""
        description = context.describe()
        self.report["group"] = {
            name: description[name] for name in ("transports", "layout", "interface", "tls")
        }
        for name, wanted in self._plan["demanded"].items():
            if description[name] != wanted:
                return f"{name} is {description[name]!r}, not {wanted!r}"
        return ""

    def _check_barrier(self, group: Any, index: int) -> str:
        """Whoever has come through has seen all others come."""
        group.context.barrier()
        every = range(self._plan["ranks"])
        peers = [r for r in every if group.size != 2 or r % 2 == self._rank % 2]
        for peer in peers:
            place, _ = read_place(self._places, peer)
            if place < index:
                return f"rank {self._rank} came through before rank {peer} had come"
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
