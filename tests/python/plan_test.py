# SPDX-License-Identifier: Apache-2.0
"""ciuic.plan: plans of one's own, built, registered, proved, costed and simulated. Files, pictures
and the command are in plan_files_test.py, what several ranks run in tests/multiprocess.
"""

import json
from typing import Any

import ciuic
import pytest
from ciuic import _native, plan
from ciuic.plan import Layout, Partition, Plan

LAYOUTS = ["1", "2", "3", "5", "2x2", "3+2", "4x1", "0,1,0,1,1"]

pytestmark = pytest.mark.usefixtures("no_plan_stays")


def others(layout: Layout, rank: int) -> list[int]:
    return [peer for peer in range(layout.size) if peer != rank]


def everyone(layout: Layout, rank: int, root: int) -> Plan:
    """Everyone sends all to everyone."""
    made = Plan(input=1, output=1, scratch=1)
    if layout.size == 1:
        made.copy(plan.input(0), plan.output(0))
        return made
    peers = others(layout, rank)
    made.send(peers, plan.input(0))
    made.reduce(peers, rank, plan.input(0), plan.scratch(0), received_raw=True, final=True)
    made.copy(plan.scratch(0), plan.output(0))
    return made


def star(layout: Layout, rank: int, root: int) -> Plan:
    made = Plan(input=1, output=1)
    if rank != root:
        made.receive(root, plan.output(0))
        return made
    if layout.size > 1:
        made.send(others(layout, rank), plan.input(0))
    made.copy(plan.input(0), plan.output(0))
    return made


def scattered(layout: Layout, rank: int, root: int) -> Plan:
    """A reduce-scatter; every rank adds up its own block."""
    made = Plan(
        Partition(layout.size, "each"), Partition(1, "each", first=rank), input_offset=-rank
    )
    for peer in others(layout, rank):
        made.send(peer, plan.input(peer))
    made.reduce(
        others(layout, rank),
        own_place=rank,
        own=plan.input(rank),
        target=plan.output(0),
        received_raw=True,
        final=True,
    )
    return made


# ---- layouts ----


@pytest.mark.parametrize("text", LAYOUTS)
def test_layout(text: str) -> None:
    layout = Layout.parse(text)
    assert layout.text == text
    assert Layout([layout.host_of(rank) for rank in range(layout.size)]) == layout
    assert sum(len(layout.ranks_on(host)) for host in range(layout.hosts)) == layout.size
    for rank in range(layout.size):
        host = layout.host_of(rank)
        assert layout.ranks_on(host)[layout.local_index(rank)] == rank
        assert layout.same_host(rank, layout.ranks_on(host)[0])


def test_hosts_are_numbered_by_their_lowest_rank() -> None:
    assert Layout([7, 3, 7]) == Layout.parse("0,1,0")
    assert Layout([7, 3, 7]).ranks_on(0) == (0, 2)


@pytest.mark.parametrize("given", [[], [-1], ["a"], [1.0], [True]])
def test_no_layout(given: list) -> None:
    with pytest.raises(ciuic.InvalidArgumentError, match="is no layout"):
        Layout(given)


@pytest.mark.parametrize("given", ["0", "2x", "", None, True, 1.5, [2]])
def test_no_layout_to_prove_on(given: Any) -> None:
    plan.register("everyone", everyone)
    with pytest.raises(ciuic.InvalidArgumentError, match="layout"):
        plan.prove("everyone", given)


# ---- the builder ----


def test_a_plan_is_what_a_file_has() -> None:
    made = Plan(Partition(2, "each"), 3, input_offset=-1, allows_in_place=False)
    made.send([2, 1], plan.inputs(0, 2), lane=1)
    made.receive(1, plan.output(2).part(0, 1))
    made.reduce(1, 1, plan.input(1), plan.output(1), received_raw=True)
    made.copy(plan.nothing(), plan.outputs(0, 0))
    assert made.as_dict() == {
        "input_offset": -1,
        "allows_in_place": False,
        "partitions": {
            "input": {"blocks": 2, "unit": "each"},
            "output": {"blocks": 3, "unit": "split"},
            "scratch": {"blocks": 0, "unit": "split"},
        },
        "steps": [
            {"kind": "send", "peers": [1, 2], "lane": 1, "source": ["input", 0, 2]},
            {"kind": "receive", "peers": [1], "target": ["output", 2, 1]},
            {
                "kind": "reduce",
                "peers": [1],
                "source": ["input", 1, 1],
                "target": ["output", 1, 1],
                "own_place": 1,
                "received_raw": True,
            },
            {"kind": "copy", "source": ["output", 0, 0], "target": ["output", 0, 0]},
        ],
    }


BLOCK = plan.output(0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda p: Plan(input=-1), "input=-1 is less than 0"),
        (lambda p: Plan(output="2"), "output='2' is no whole number"),
        (lambda p: Plan(scratch=True), "scratch=True is no whole number"),
        (lambda p: Plan(input_offset=0.5), "input_offset=0.5 is no whole number"),
        (lambda p: Plan(allows_in_place=1), "allows_in_place=1 is neither True nor False"),
        (lambda p: Partition(2, "every"), "unit='every'; there are split, each"),
        (lambda p: Partition(-2), "blocks=-2 is less than 0"),
        (lambda p: Partition(2, first=-1), "first=-1 is less than 0"),
        (lambda p: Partition(2, "each", owners=(0, -1)), "owner=-1 is less than 0"),
        (lambda p: plan.input(-1), "first=-1 is less than 0"),
        (lambda p: plan.outputs(0, -1), "count=-1 is less than 0"),
        (lambda p: plan.scratch(None), "first=None is no whole number"),
        (lambda p: plan.BlockRange("inputs", 0, 1), "space='inputs'; there are input, output"),
        (lambda p: p.send([0, -1], BLOCK), "peer=-1 is less than 0"),
        (lambda p: p.send(["1"], BLOCK), "peer='1' is no whole number"),
        (lambda p: p.send(1, 0), "send: source=0 is no range of blocks"),
        (lambda p: p.send(1, BLOCK, lane=-1), "lane=-1 is less than 0"),
        (lambda p: p.receive([1], BLOCK), r"peer=\[1\] is no whole number"),
        (lambda p: p.receive(1, None), "receive: target=None is no range of blocks"),
        (lambda p: p.reduce(1, -1, BLOCK, BLOCK), "own_place=-1 is less than 0"),
        (lambda p: p.reduce(1, 0, 0, BLOCK), "reduce: source=0 is no range of blocks"),
        (lambda p: p.reduce(1, 0, BLOCK, BLOCK, final=1), "final=1 is neither True nor False"),
        (lambda p: p.reduce(1, 0, BLOCK, BLOCK, received_raw=0), "received_raw=0 is neither"),
        (lambda p: p.copy(BLOCK, "output"), "copy: target='output' is no range of blocks"),
    ],
)
def test_wrong_arguments(wrong: Any, message: str) -> None:
    with pytest.raises(ciuic.InvalidArgumentError, match=message):
        wrong(Plan(input=1, output=1))


# ---- the registry ----


def test_registered() -> None:
    plan.register("everyone", everyone)
    plan.register("star", star, "broadcast")
    plan.register("star", star, operation="broadcast")  # again: the later one counts
    assert plan.registered() == {"all_reduce": ["everyone"], "broadcast": ["star"]}
    plan.unregister("everyone")
    plan.unregister("star")  # of all_reduce: there is none
    assert plan.registered() == {"broadcast": ["star"]}


@pytest.mark.parametrize("name", ["ring", "one_shot", "", "a b", "1st", "ä", "x" * 65, 3, "a/b"])
def test_names_that_cannot_be(name: Any) -> None:
    with pytest.raises(ciuic.InvalidArgumentError, match=r"is no name|take another name"):
        plan.register(name, everyone)
    assert plan.registered() == {}


def test_what_cannot_be_registered() -> None:
    with pytest.raises(ciuic.InvalidArgumentError, match="no operation 'send'; there are all_red"):
        plan.register("mine", everyone, "send")
    with pytest.raises(ciuic.InvalidArgumentError, match="is no function"):
        plan.register("mine", Plan())


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (None, "gave NoneType for rank 0"),
        ([], "gave list for rank 0"),
        ({"algorithm": "other"}, "the plan of rank 0 is of 'other'"),
        ({}, "rank 0: partitions are missing"),
        ({"partitions": {}, "steps": [], "lanes": 1}, "unknown field 'lanes'"),
        ({"partitions": {}, "steps": {}}, "steps must be a list"),
        ({"partitions": {"inputs": {}}, "steps": []}, "unknown field 'inputs'"),
        ({"partitions": {"input": {"blocks": 1}}, "steps": []}, "unit must be a text"),
    ],
)
def test_what_a_function_may_not_give(made: Any, message: str) -> None:
    plan.register("mine", lambda layout, rank, root: made)
    with pytest.raises(ciuic.InvalidArgumentError, match=message):
        plan.prove("mine", 2)


STEP = {"kind": "send", "peers": [1], "source": ["input", 0, 1]}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("kind", "sends", "kind must be send, receive, reduce or copy"),
        ("peers", [2], "peers must be ranks below 2"),
        ("peers", [0], "a rank is no peer of itself"),
        ("peers", [], "no peer"),
        ("lane", 256, "lane must be from 0 to 255"),
        ("source", ["input", 0], r"source must be \[space, first, count\]"),
        ("source", ["inputs", 0, 1], r"source must be \[space, first, count\]"),
        ("source", ["input", 1, 1], "source out of bounds"),
        ("target", ["output", 0, 1], "unknown field 'target'"),
        ("final", True, "unknown field 'final'"),
    ],
)
def test_wrong_fields(field: str, value: Any, message: str) -> None:
    def make(layout: Layout, rank: int, root: int) -> dict[str, Any]:
        made = Plan(1, 1).as_dict()
        made["steps"] = [{**STEP, field: value}]
        return made

    plan.register("mine", make)
    with pytest.raises(ciuic.InvalidArgumentError, match=message) as raised:
        plan.prove("mine", 2)
    assert "rank 0" in str(raised.value)


def test_what_a_function_raises_comes_through() -> None:
    plan.register("mine", lambda layout, rank, root: layout.ranks_on(5))
    with pytest.raises(IndexError):
        plan.prove("mine", 2)


# ---- proofs ----


@pytest.mark.parametrize("layout", LAYOUTS)
def test_right_plans_are_proved(layout: str) -> None:
    plan.register("everyone", everyone)
    plan.register("star", star, "broadcast")
    plan.prove("everyone", layout)
    plan.prove("star", layout)
    if layout != "1":
        plan.register("scattered", scattered, "reduce_scatter")
        plan.prove("scattered", layout)


def test_a_dict_will_do() -> None:
    plan.register("everyone", lambda *place: everyone(*place).as_dict())
    plan.prove("everyone", 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda made: made.steps.pop(0), r"rank 1, step 0 \(reduce .*: rank 0 does not send it"),
        (lambda made: made.steps.pop(2), "rank 0, output 0"),
        (lambda made: made.steps[1].pop("final"), r"rank 0, step 1 \(reduce"),
        (lambda made: made.steps[1].pop("received_raw"), r"rank 0, step 1 \(reduce"),
        (lambda made: made.steps[1].pop("own_place", None), "output 0: is another expression"),
        (lambda made: made.steps[1].update(target=["input", 0, 1]), "writes the input"),
        (
            lambda made: [made.steps.pop(), made.steps[1].update(target=["output", 0, 1])],
            r"deadlock .*: rank 0 waits in step 1 \(reduce",
        ),
    ],
)
def test_wrong_plans_are_told_where(change: Any, message: str) -> None:
    def make(layout: Layout, rank: int, root: int) -> Plan:
        made = everyone(layout, rank, root)
        change(made)
        return made

    plan.register("mine", make)
    with pytest.raises(ciuic.InvalidArgumentError, match=message):
        plan.prove("mine", 3)
    with pytest.raises(ciuic.InvalidArgumentError, match=message):
        plan.describe("mine", 3)
    with pytest.raises(ciuic.InvalidArgumentError, match=message):
        plan.simulate("mine", 3)


def test_every_root_is_proved_if_none_is_named() -> None:
    def wrong_for_two(layout: Layout, rank: int, root: int) -> Plan:
        return star(layout, rank, min(root, 1))

    plan.register("star", wrong_for_two, "broadcast")
    plan.prove("star", 3, root=0)
    plan.prove("star", 3, root=1)
    for root in (None, 2):
        with pytest.raises(ciuic.InvalidArgumentError, match="only the root has an input"):
            plan.prove("star", 3, root=root)
    with pytest.raises(ciuic.InvalidArgumentError, match="root"):
        plan.prove("star", 3, root=3)


def test_one_name_for_two_operations() -> None:
    plan.register("mine", everyone)
    plan.register("mine", star, "broadcast")
    with pytest.raises(ciuic.InvalidArgumentError, match="registered for all_reduce, broadcast"):
        plan.prove("mine", 2)
    plan.prove("mine", 2, operation="broadcast")
    assert plan.describe("mine", 2, operation="all_reduce")["operation"] == "all_reduce"


def test_no_such_algorithm() -> None:
    with pytest.raises(ciuic.InvalidArgumentError, match=r"no algorithm 'mine' .* it has .*ring"):
        plan.prove("mine", 4)


# ---- costs and simulations ----


def test_costs_are_those_of_the_same_plan_built_in() -> None:
    plan.register("everyone", everyone)
    mine = plan.describe("everyone", "2x2", bytes=1 << 20)
    known = json.loads(
        _native.describe_plan("all_reduce", 0, "2x2", 1 << 20, "float32", "sum", "one_shot", 0, -1)
    )
    assert mine["algorithm"] == "everyone"
    assert mine["chosen"] is False
    mine["chunk_bytes"] = known["chunk_bytes"]
    assert mine["plans"] == known["plans"]
    assert mine["totals"] == known["totals"]
    more = plan.describe("everyone", "2x2", bytes=1 << 24)
    assert more["predicted_us"] > mine["predicted_us"] > 0


def test_simulated() -> None:
    plan.register("everyone", everyone)
    plan.register("star", star, "broadcast")
    plan.register("scattered", scattered, "reduce_scatter")
    done: list[int] = []
    once = plan.simulate("everyone", "2+1", seeds=10, progress=done.append)
    assert once.seeds == 10
    assert once.operations >= 3 * 10
    assert done == list(range(1, 11))
    assert plan.simulate("everyone", "2+1", seeds=10) == once  # a seed replays
    assert plan.simulate("everyone", "2+1", seeds=10, first_seed=11) != once
    assert plan.simulate("star", 3, seeds=6).operations >= 18
    assert plan.simulate("scattered", "2x2", seeds=5).operations >= 20
    for seeds in (0, -1):
        with pytest.raises(ciuic.InvalidArgumentError, match="one or more"):
            plan.simulate("everyone", 2, seeds=seeds)


def test_the_simulator_compares_results() -> None:
    """Plans are proved before, so that only one that was not can be seen to be wrong there."""
    plan.register("star", star, "broadcast")
    file = json.loads(plan.export("star", 2, root=1))
    file["root"] = 0  # still the other one's values
    for made in file["plans"]:
        made["partitions"]["input"]["blocks"] = 1
    outcome = [_native.simulate_plan(json.dumps(file), seed)["failures"] for seed in range(1, 9)]
    assert any("rank" in text for failures in outcome for text in failures)
