# SPDX-License-Identifier: Apache-2.0
"""Tests of call_cost: what it makes of callgrind's output, and which lines it counts."""

from __future__ import annotations

import subprocess
import sys

import call_cost
import pytest
from call_cost import PARTS, ROOT, Part

OUTPUT = """\
version: 1
creator: callgrind-3.19.0
positions: line
events: Ir
summary: 1000

ob=/somewhere/call_loop
fl=/somewhere/src/engine/run.cc
fn=ciuic::engine::run(...)
10 5
fi=/somewhere/src/engine/group.h
20 3
fe=/somewhere/src/engine/run.cc
11 2
cfi=/somewhere/src/engine/bind.cc
cfn=ciuic::engine::bind(...)
calls=7 30
11 700
12 4
10 1

fl=/somewhere/src/engine/bind.cc
fn=ciuic::engine::bind(...)
30 100

totals: 1000
"""


def test_own_instructions_of_each_line() -> None:
    assert call_cost.parse(OUTPUT) == {
        ("src/engine/run.cc", 10): 6,
        ("src/engine/group.h", 20): 3,
        ("src/engine/run.cc", 11): 2,  # without the 700 of what it calls
        ("src/engine/run.cc", 12): 4,
        ("src/engine/bind.cc", 30): 100,
    }


def test_lines_that_name_it_and_whole_functions() -> None:
    source = """\
// fingerprint: only spoken of
static void record_call(Group& group) {
  keep(group);
}
void other(uint32_t fingerprint) {
  record_call(group);
  header.fingerprint = 1;  // put
  more();  // no fingerprint
}
"""
    assert call_cost.lines_of(Part("", "", ("record_call",)), source) == {2, 3, 4, 7}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_each_part_is_there(part: Part) -> None:
    source = (ROOT / part.path).read_text()
    numbers = call_cost.lines_of(part, source)
    assert numbers
    for name in part.functions:
        assert call_cost.lines_of(Part("", "", (name,)), source) > call_cost.lines_of(
            Part("", ""), source
        )


def test_the_difference_of_two_runs_is_what_counts() -> None:
    calls = (call_cost.MANY - call_cost.FEW) * call_cost.RANKS
    sources = {part.path: "" for part in PARTS}
    sources["src/engine/run.cc"] = "  header.fingerprint = 1;\n  other();\n"
    few = {("src/engine/run.cc", 1): 100, ("src/engine/run.cc", 2): 5}
    many = {("src/engine/run.cc", 1): 100 + 3 * calls, ("src/engine/run.cc", 2): 5000}
    costs = call_cost.costs(few, many, sources)
    assert costs["put it into a header"] == 3
    assert sum(costs.values()) == 3


def test_without_valgrind_it_says_so(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, call_cost.__file__],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "valgrind is not installed" in done.stderr
