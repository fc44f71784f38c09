# SPDX-License-Identifier: Apache-2.0
"""What ``ciuic selftest`` takes for right, is: its reference against NumPy and ml_dtypes. And what
it makes of names, and of what ranks report. tests/multiprocess/selftest_test.py runs it.
"""

import math
import random
import re

import ml_dtypes
import numpy
import pytest
from ciuic import CiuicContext, _native
from ciuic.cli.app import app
from ciuic.dtypes import CODE_OF_NAME
from ciuic.selftest import cases, elements, machine, memory, reference, routes, summary
from ciuic.selftest.cases import Case, matches
from ciuic.selftest.machine import Finding, all_findings
from ciuic.selftest.operations import Group
from ciuic.selftest.routes import ROUTES
from ciuic.selftest.starter import Failure, Outcome, blamed
from typer.testing import CliRunner

DTYPES = {name: numpy.dtype(getattr(ml_dtypes, name, None) or name) for name in CODE_OF_NAME}
SMALL = list(elements.SMALL_FLOATS)


def same(a: float, b: float) -> bool:
    return (a != a and b != b) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@pytest.mark.parametrize("dtype", SMALL)
def test_every_small_float_is_decoded(dtype: str) -> None:
    bits = DTYPES[dtype].itemsize * 8
    data = numpy.arange(1 << bits, dtype=f"uint{bits}").tobytes()
    with numpy.errstate(invalid="ignore"):
        right = numpy.frombuffer(data, DTYPES[dtype]).astype(numpy.float64)
    got = elements.decode(data, dtype)
    assert all(same(x, y) for x, y in zip(got, right.tolist(), strict=True))


@pytest.mark.parametrize("dtype", SMALL)
def test_small_floats_are_rounded_to_even(dtype: str) -> None:
    """Every number, what is half-way to the next one, and what is just beside that."""
    bits = DTYPES[dtype].itemsize * 8
    finite = numpy.arange(1 << bits, dtype=f"uint{bits}").view(DTYPES[dtype]).astype("float32")
    finite = numpy.sort(finite[numpy.isfinite(finite)])[:: 1 if bits == 8 else 37]
    special = numpy.float32([math.inf, -math.inf, 0.0, -0.0, 1e38])
    with numpy.errstate(over="ignore"):
        halves = (finite[1:] + finite[:-1]) / 2
        beside = numpy.nextafter(halves, numpy.float32(9e9))
        values = numpy.concatenate([finite, halves, beside, finite * 3, special])
        right = values.astype(DTYPES[dtype])
    got = numpy.frombuffer(elements.encode(values.tolist(), dtype), DTYPES[dtype])
    numbers = numpy.isfinite(right.astype("float32")) | numpy.isinf(right.astype("float32"))
    assert (got.view(f"uint{bits}")[numbers] == right.view(f"uint{bits}")[numbers]).all()
    assert numpy.isnan(got[~numbers].astype("float32")).all()


@pytest.mark.parametrize("dtype", list(CODE_OF_NAME))
def test_elements_come_back(dtype: str) -> None:
    data = random.Random(1).randbytes(64 * DTYPES[dtype].itemsize)
    if dtype == "bool":
        assert elements.encode(elements.decode(data, dtype), dtype) == bytes(b != 0 for b in data)
        return
    values = elements.decode(data, dtype)
    back = numpy.frombuffer(elements.encode(values, dtype), DTYPES[dtype])
    right = numpy.frombuffer(data, DTYPES[dtype])
    assert ((back == right) | ((back != back) & (right != right))).all()


def by_numpy(op: str, arrays: list[numpy.ndarray]) -> numpy.ndarray:
    """In the ranks' order; the core's AVG of integers truncates what has wrapped."""
    functions = {
        **{"sum": numpy.add, "avg": numpy.add, "product": numpy.multiply},
        **{"min": numpy.minimum, "max": numpy.maximum},
        **{"band": numpy.bitwise_and, "bor": numpy.bitwise_or, "bxor": numpy.bitwise_xor},
    }
    dtype = arrays[0].dtype
    is_small = dtype.itemsize <= 2 and dtype.kind not in "iub"
    given = [x.astype("float32") if is_small else x for x in arrays]
    result = given[0]
    for x in given[1:]:
        if op == "product" and dtype.kind == "c":  # NumPy's own rounds once where it can
            a, b = result, x
            result = numpy.empty_like(a)
            result.real = a.real * b.real - a.imag * b.imag
            result.imag = a.real * b.imag + a.imag * b.real
        else:
            result = functions[op](result, x)
    if op == "avg" and dtype.kind in "iu":
        wide = result.astype(object)
        return numpy.array(
            [abs(x) // len(arrays) * (1 if x >= 0 else -1) for x in wide], dtype=dtype
        )
    if op == "avg":
        result = result / numpy.array(len(arrays), dtype=result.real.dtype)
    return result.astype(dtype)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", list(CODE_OF_NAME))
def test_the_reference_is_numpys(dtype: str, ranks: int) -> None:
    for op in cases.ops_of(dtype):
        if ranks == 3 and op == "avg" and dtype not in elements.INTEGERS:
            continue  # the core scales before it adds; not a result that is tested
        count = 2 * reference.PERIOD + 3
        inputs = [
            numpy.frombuffer(reference.reduced_input(dtype, r, ranks, 5, count), DTYPES[dtype])
            for r in range(ranks)
        ]
        if dtype == "bool":
            inputs = [x.view("uint8") != 0 for x in inputs]
        with numpy.errstate(all="ignore"):
            right = by_numpy(op, inputs)
        got = numpy.frombuffer(reference.reduced(dtype, op, ranks, 5, count), DTYPES[dtype])
        fine = (got == right) | ((got != got) & (right != right))
        assert fine.all(), (op, got[~fine][:3], right[~fine][:3])


def test_zeros_keep_their_order() -> None:
    for dtype in ("float32", "float64", *SMALL):
        for zeros in ((0.0, -0.0), (-0.0, 0.0)):
            assert same(reference.fold(dtype, "min", zeros), -0.0)
            assert same(reference.fold(dtype, "max", zeros), 0.0)


def test_a_difference_is_told() -> None:
    right = elements.encode([1.0, 2.0, 3.0, 4.0], "float16")
    wrong = elements.encode([1.0, 2.5, 3.0, 5.0], "float16")
    assert reference.first_difference(right, right, "float16") == ""
    text = reference.first_difference(wrong, right, "float16")
    assert text == "element 1 of 4 is 2.5 (0x4100), not 2.0 (0x4000); 2 differ"
    assert "6 bytes" in reference.first_difference(right[:6], right, "float16")


def test_what_is_misplaced_is_seen() -> None:
    """A power of two of elements, as chunks and slots are."""
    for dtype in CODE_OF_NAME:
        for shift in (1 << power for power in range(17)):
            here = reference.reduced(dtype, cases.ops_of(dtype)[0], 2, 0, 97)
            there = reference.reduced(dtype, cases.ops_of(dtype)[0], 2, shift, 97)
            assert here != there, (dtype, shift)


# ---- names ----


def test_every_operation_has_every_dtype_and_op() -> None:
    for quick in (False, True):
        every = cases.all_cases(quick=quick)
        names = [case.name for case in every]
        assert len(set(names)) == len(names)
        assert {case.operation for case in every} == set(cases.OPERATIONS)
        found = {(case.operation, case.dtype, case.op) for case in every}
        for operation in cases.OPERATIONS:
            if operation in ("join", "barrier"):
                continue
            for dtype, code in CODE_OF_NAME.items():
                for op, number in _native.op_codes.items():
                    if operation in cases.REDUCTIONS:
                        there = _native.is_reducible(code, number)
                        assert ((operation, dtype, op) in found) == there
                assert operation in cases.REDUCTIONS or (operation, dtype, "") in found
    assert {case.ranks for case in cases.all_cases()} == {2, 3, 4}


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("tcp", True),
        ("tcp/all_reduce", True),
        ("tcp/all_reduce/float16/avg", True),
        ("tcp/all_reduce/float16/avg/4x7", True),
        ("*/all_reduce/*/avg", True),
        ("*/*/float*", True),
        ("tcp/", True),
        ("tc", False),
        ("tcp/all_reduce/float16/avg/4x7/more", False),
        ("tcp6/all_reduce", False),
        ("tcp/all_reduce/float", False),
    ],
)
def test_patterns(pattern: str, fits: bool) -> None:
    name = "tcp/" + Case("all_reduce", "float16", "avg", 4, 7).name
    assert name == "tcp/all_reduce/float16/avg/4x7"
    assert matches(name, [pattern]) == fits
    assert matches(name, []) and matches(name, ["shm", pattern]) == fits


def test_a_pattern_without_a_check_is_refused() -> None:
    result = CliRunner().invoke(app, ["selftest", "--only", "tcp/all_reduce/bool/avg"])
    assert result.exit_code == 2
    assert "there is no such check" in result.output


# ---- one rank: what the calls compare ----


ALONE = [
    Case(operation, dtype, op, 1, count)
    for dtype in CODE_OF_NAME
    for count in (7, 1001)
    for operation, op in [
        *((each, op) for each in cases.REDUCTIONS for op in cases.ops_of(dtype)),
        *((each, "") for each in cases.MOVEMENTS if each not in ("send_recv", "recv_any")),
        ("subgroup", ""),
    ]
]


@pytest.mark.parametrize("with_numpy", [False, True])
def test_all_operations_with_and_without_numpy(
    ctx: CiuicContext, monkeypatch: pytest.MonkeyPatch, with_numpy: bool
) -> None:
    if not with_numpy:
        monkeypatch.setattr(memory, "_import", lambda name: None)
    maker = memory.Maker()
    assert ("NumPy is not installed" in maker.described) == (not with_numpy)
    group = Group(ctx, maker)
    wrong = [(case.name, text) for case in ALONE if (text := group.check(case))]
    assert wrong == []


def test_a_wrong_result_is_seen(ctx: CiuicContext, monkeypatch: pytest.MonkeyPatch) -> None:
    import ciuic

    def all_reduce(x, op, context):
        x[3] ^= 1

    monkeypatch.setattr(ciuic, "all_reduce", all_reduce)
    case = Case("all_reduce", "int32", "sum", 1, 7)
    text = Group(ctx, memory.Maker()).check(case)
    assert text.startswith("element 3 of 7 is ")
    assert text.endswith("; 1 differ")


def test_few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    for limits, advice in (((200, 9999), "`ulimit -n 9999`"), ((200, 200), "limits.conf")):
        monkeypatch.setattr(machine.resource, "getrlimit", lambda _, limits=limits: limits)
        finding = all_findings()["descriptors"]()
        assert not finding.good
        assert advice in finding.text


def test_no_ipv6_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoSocket:
        def __init__(self, *_: object) -> None:
            raise OSError(97, "Address family not supported by protocol")

    monkeypatch.setattr(routes.socket, "socket", NoSocket)
    reasons = {route.name: routes.why_not(route) for route in ROUTES}
    assert "no IPv6 on this machine" in reasons.pop("tcp6")
    assert not any(reasons.values())


def test_findings_of_this_machine() -> None:
    every = all_findings()
    for name in ("version", "memory", "descriptors"):
        finding = every[name]()
        assert finding.name == name
        assert finding.good, finding.text


# ---- what is made of the ranks' reports ----


def outcome(done: int, failures: list[Failure] = [], missing: str = "") -> Outcome:  # noqa: B006
    return Outcome(missing, done, failures, {}, "NumPy", {"all_reduce": 0.5})


def test_summary() -> None:
    every = [
        Case("all_reduce", "float16", "avg", 4, 7),
        Case("all_reduce", "float32", "avg", 4, 7),
        Case("broadcast", "bool", "", 4, 7),
    ]
    shm, tcp, tcp6 = ROUTES[:3]
    bad = [Failure(every[0].name, 2, "two"), Failure(every[0].name, 1, "one")]
    found = summary.summarise(
        [
            (shm, every, outcome(3)),
            (tcp, every, outcome(2, bad)),
            (tcp6, every, outcome(0, missing="no IPv6")),
        ],
        [Finding("store", True, "fine")],
        48.2,
    )
    assert found["failed"] == 1
    assert summary.last_line(found) == "selftest: 6 checks, 1 failed, 1 not made, 48 s"
    assert found["failures"] == [
        {
            "name": "tcp/all_reduce/float16/avg/4x7",
            "rank": 1,
            "text": "one",
            "command": "ciuic selftest --only tcp/all_reduce/float16/avg/4x7",
        }
    ]
    heads, rows = summary.table(found)
    assert heads == ["operation", "shm", "tcp"]
    assert rows == [
        ["all_reduce", "2", "2, 1 failed"],
        ["broadcast", "1", ""],
        ["together", "3", "2, 1 failed"],
    ]
    lines = summary.failure_lines(found)
    assert lines[0] == "failed: tcp/all_reduce/float16/avg/4x7 on rank 1: one"
    assert lines[1].strip() == "ciuic selftest --only tcp/all_reduce/float16/avg/4x7"


def test_nothing_is_proven_without_a_transport() -> None:
    every = [Case("barrier", "", "", 4, 0)]
    found = summary.summarise([(ROUTES[0], every, outcome(0, missing="no memfd"))], [], 1)
    assert found["failed"] == 1
    assert "no transport works here: shm: no memfd" in summary.failure_lines(found)[0]
    assert re.fullmatch(r"selftest: 0 checks, 1 failed, 1 s", summary.last_line(found))


def test_whose_error_it_is() -> None:
    """Not that of a rank that lost the one that failed, and not one that came later."""
    lost = {"type": "PeerLostError", "text": "rank 2 is gone", "at": 4}
    crash = {"type": "Crash", "text": "signal 11"}  # it could not say where it was
    reports = [
        {"rank": 0, "error": lost},
        {"rank": 1, "error": {**lost, "at": 5}},
        {"rank": 2, "error": crash},
        {"rank": 3},
    ]
    assert blamed(reports, [4, 5, 5, 6]) == (2, 5, crash)
    assert blamed(reports[3:], [6]) is None
