# SPDX-License-Identifier: Apache-2.0
"""Texts from outside, as hypothesis makes them up: read, or refused with the error that is due."""

import io
import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from ciuic import CiuicContext, CiuicError, InvalidArgumentError, _native
from ciuic.bench.options import parse_size
from ciuic.rendezvous import launched_as
from ciuic.run.output import Output
from hypothesis import given, settings
from hypothesis import strategies as st

# What an environment can hold: no zero, and bytes that are no UTF-8 as lone surrogates.
VALUES = st.one_of(
    st.integers(-5, 5000).map(str),
    st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20),
    st.binary(max_size=20).map(lambda value: os.fsdecode(value.replace(b"\0", b""))),
)


def is_a_line_of_text(message: str) -> bool:
    """No control characters, ends of lines, lone surrogates, or turns of direction."""
    return not any(
        unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(letter) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI")
        for letter in message
    )


@contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "RANK",
                "WORLD_SIZE",
                "LOCAL_RANK",
                "PMI_RANK",
                "PMI_SIZE",
                "SLURM_PROCID",
                "SLURM_NTASKS",
                "OMPI_COMM_WORLD_RANK",
                "OMPI_COMM_WORLD_SIZE",
            ]
        ),
        VALUES,
    )
)
def test_launchers_variables(variables: dict[str, str]) -> None:
    with environment(variables):
        try:
            launched = launched_as()
        except ValueError as error:
            assert any(name in str(error) for name in variables)
            return
    assert launched is None or all(isinstance(number, int) for number in launched)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([setting["name"] for setting in json.loads(_native.settings_json())]), VALUES
)
def test_settings(name: str, value: str) -> None:
    """An error is of our own kind, and one line of text, whatever the value is."""
    with environment({name: value}):
        try:
            found = json.loads(_native.settings_json())
        except InvalidArgumentError as error:
            assert is_a_line_of_text(str(error)), error
            assert name in str(error)
            return
    assert any(setting["name"] == name for setting in found)


@given(st.text(max_size=30))
def test_sizes(text: str) -> None:
    try:
        assert parse_size(text) >= 0
    except ValueError as error:
        assert "no size" in str(error)
    native = _native.parse_size(text)
    assert native is None or native >= 0


@settings(max_examples=100, deadline=None)
@given(
    operation=st.sampled_from(["all_reduce", "broadcast", "barrier"]) | st.text(max_size=12),
    layout=st.sampled_from(["", "2", "2x2", "0,1,0"]) | st.text("0123456789x+,", max_size=6),
    ranks=st.integers(-1, 600),
    size=st.integers(-1, 1 << 62),
    dtype=st.sampled_from(["float32", "uint8"]) | st.text(max_size=8),
    op=st.sampled_from(["sum", "avg"]) | st.text(max_size=8),
    algorithm=st.sampled_from(["", "ring", "direct"]) | st.text(max_size=8),
    root=st.integers(-2, 600),
)
def test_questions_about_plans(operation, layout, ranks, size, dtype, op, algorithm, root) -> None:
    try:
        text = _native.describe_plan(
            operation, ranks, layout, size, dtype, op, algorithm, root, rank=0
        )
    except CiuicError as error:
        assert is_a_line_of_text(str(error)), error
        return
    assert json.loads(text)["ranks"] >= 1


# Lines, errors' reports among them, in any pieces.
CHUNKS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(["stdout", "stderr"]),
        st.binary(min_size=1, max_size=60)
        | st.sampled_from(
            [b"Traceback (most recent call last):\n", b"\r\n", b"\r", b"ValueError\n"]
        ),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(CHUNKS)
def test_output_of_ranks_comes_out_whole(chunks: list[tuple[int, str, bytes]]) -> None:
    files = {"stdout": io.BytesIO(), "stderr": io.BytesIO()}
    output = Output(2, files["stdout"], files["stderr"], clock=lambda: 0.0)
    said: dict[tuple[int, str], bytes] = {}
    for rank, stream, data in chunks:
        output.feed(rank, stream, data)
        said[rank, stream] = said.get((rank, stream), b"") + data
    for rank, stream in said:
        output.feed(rank, stream, b"")
    output.release_all()
    for (rank, stream), data in said.items():
        mark = f"[{rank}] ".encode()
        lines = files[stream].getvalue().splitlines()
        written = [line.removeprefix(mark) for line in lines if line.startswith(mark)]
        # A "\r\n" that came in two pieces may count as two ends.
        assert [line for line in written if line] == [line for line in data.splitlines() if line]


def test_a_variable_that_is_no_text_is_an_error_of_ours() -> None:
    """Bytes that are no UTF-8: the error must not be one about its own message."""
    program = (
        "import ciuic, sys\n"
        "try:\n"
        "    ciuic.CiuicContext(world_size=1, rank=0)\n"
        "except ciuic.InvalidArgumentError as error:\n"
        "    sys.exit(0 if 'CIUIC_TRANSPORT=?' in str(error) else 3)\n"
        "sys.exit(4)\n"
    )
    variables = {**os.environb, b"CIUIC_TRANSPORT": b"\xff\x1b"}
    assert subprocess.run([sys.executable, "-c", program], env=variables).returncode == 0


def test_no_message_is_lost_where_its_words_are_no_text(ctx: CiuicContext) -> None:
    with pytest.raises(InvalidArgumentError, match="no operation"):
        _native.describe_plan("\x1b[2J", 2, "", 8, "float32", "sum", "", 0, 0)
