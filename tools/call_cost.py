# SPDX-License-Identifier: Apache-2.0
"""What the comparison of the ranks' calls costs, in instructions a call, counted by callgrind.

    python tools/call_cost.py --build build/release

runs ``bench/call_loop`` twice, with few calls and with more, so that the join counts for nothing.
It sums up the instructions of every source line that is there for the fingerprint: lines that name
it, and the functions that keep what was called. Lines that serve other ends, too, count in full;
what a function costs that only has it as an argument does not.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FEW, MANY = 1_000, 5_000
RANKS = 2

Lines = dict[tuple[str, int], int]  # (file below the root, line): instructions


@dataclass(frozen=True)
class Part:
    """Lines of one file: those that name the fingerprint, and whole functions."""

    name: str
    path: str
    functions: tuple[str, ...] = ()


PARTS = (
    Part("take it from the remembered choice", "src/collective/chooser.cc"),
    Part("put it into the request", "src/collective/prepare.cc"),
    Part("keep what was called", "src/engine/bind.cc", ("record_call", "call_of")),
    Part("put it into a header", "src/engine/run.cc"),
    Part("compare it with a header's", "src/engine/receive.cc"),
    Part("write it to shared memory, and read it", "src/transport/shm/shm_link.cc"),
    Part("record it", "src/trace/recorder.cc"),
)

_POSITION = re.compile(r"(fl|fi|fe)=(?:\(\d+\)\s*)?(.*)")
_COST = re.compile(r"(\d+) (\d+)$")


def parse(text: str) -> Lines:
    """The instructions of each source line, from what callgrind wrote with uncompressed names."""
    lines: Lines = collections.defaultdict(int)
    path = ""
    is_inclusive = False
    for line in text.splitlines():
        position = _POSITION.match(line)
        if position:
            path = below_root(position[2])
        elif line.startswith("calls="):
            is_inclusive = True  # the next line is what the callee took
        elif cost := _COST.match(line):
            if not is_inclusive:
                lines[path, int(cost[1])] += int(cost[2])
            is_inclusive = False
    return dict(lines)


def below_root(path: str) -> str:
    """``src/engine/run.cc`` of whatever folder it was compiled in."""
    for folder in ("/src/", "/include/", "/bench/"):
        before, found, after = path.rpartition(folder)
        if found and before:
            return folder[1:] + after
    return path


def lines_of(part: Part, source: str) -> set[int]:
    """The numbers of the part's lines in ``source``, from 1."""
    found: set[int] = set()
    inside = False
    for number, line in enumerate(source.splitlines(), start=1):
        if any(re.match(rf"[^\s/].*\b{name}\(.*[^;]$", line) for name in part.functions):
            inside = True
        is_statement = line.startswith(" ")
        if inside or (is_statement and "fingerprint" in line.split("//")[0]):
            found.add(number)
        if line.startswith("}"):
            inside = False
    return found


def costs(few: Lines, many: Lines, sources: dict[str, str]) -> dict[str, float]:
    """Instructions a call, by the part's name."""
    calls = (MANY - FEW) * RANKS
    result = {}
    for part in PARTS:
        numbers = lines_of(part, sources[part.path])
        more = sum(many.get((part.path, n), 0) - few.get((part.path, n), 0) for n in numbers)
        result[part.name] = more / calls
    return result


def count(program: Path, calls: int, folder: Path) -> Lines:
    out = folder / f"callgrind.{calls}"
    command = ["valgrind", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no"]
    command += [f"--callgrind-out-file={out}", str(program), str(calls)]
    environment = os.environ | {"CIUIC_TRANSPORT": "shm"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        sys.exit(f"call_cost: {' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return parse(out.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--most", type=float, help="fail where it is more than that")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("call_cost: valgrind is not installed (Debian: apt-get install valgrind)")
    program = options.build / "bench/call_loop"
    if not program.exists():
        sys.exit(f"call_cost: {program} is not there: cmake --build {options.build}")
    with tempfile.TemporaryDirectory() as folder:
        few, many = (count(program, calls, Path(folder)) for calls in (FEW, MANY))
    sources = {part.path: (ROOT / part.path).read_text() for part in PARTS}
    parts = costs(few, many, sources)
    total = sum(parts.values())
    print(f"fingerprint: {total:.1f} instructions a call")
    for name, cost in parts.items():
        print(f"  {cost:6.1f}  {name}")
    if options.most is not None and total > options.most:
        sys.exit(f"call_cost: more than {options.most:g}")


if __name__ == "__main__":
    main()
