# SPDX-License-Identifier: Apache-2.0
"""Tests of algorithm_list: what it reads out of the sources, and that the page is not stale."""

from __future__ import annotations

from pathlib import Path

import algorithm_list
import pytest
import written_part

ROOT = Path(algorithm_list.__file__).resolve().parent.parent

HEAD = """// SPDX-License-Identifier: Apache-2.0
// relay.cc: broadcast by hand, from
// one to the next.
//
// Some more about it.
//
//   steps    n - 1, each after
//            the one before
//   sends    one buffer
//   use for  nothing
//   source   Somebody (1999)
//
// Why it is as it is.

#include "plan/relay.h"
"""


def test_a_comment_is_read():
    head = algorithm_list.head_of(HEAD, "relay.cc")
    assert head.title == "broadcast by hand, from one to the next."
    assert head.fields == {
        "steps": "n - 1, each after the one before",
        "sends": "one buffer",
        "use for": "nothing",
        "source": "Somebody (1999)",
    }


@pytest.mark.parametrize("name", algorithm_list.FIELDS)
def test_a_comment_that_lacks_something_is_refused(name):
    text = "".join(line for line in HEAD.splitlines(True) if f"//   {name} " not in line)
    with pytest.raises(ValueError, match=f"relay.cc does not say: .*{name}"):
        algorithm_list.head_of(text, "relay.cc")


def test_every_row_of_the_registry_is_there():
    rows = (ROOT / "src/plan/registry.cc").read_text("utf-8").count("{Operation::k")
    entries = algorithm_list.entries(ROOT)
    assert sum(len(entry.names) for entry in entries) == rows
    assert {entry.file for entry in entries} == {
        path.name
        for path in (ROOT / "src/plan").glob("*.cc")
        if any(path.stem.endswith(f"_{entry.operation}") for entry in entries)
    }
    (ring,) = [entry for entry in entries if entry.file == "ring_reduce_scatter.cc"]
    assert (ring.operation, ring.names, ring.is_uneven) == (
        "reduce_scatter",
        ["ring"],
        True,
    )


def test_the_page_is_not_stale():
    page = ROOT / algorithm_list.PART.page
    text = page.read_text("utf-8")
    assert list(algorithm_list.PART.complaints(page, text, ROOT)) == []
    stale = text.replace("- **sends** (n - 1) / n of", "- **sends** all of")
    assert stale != text
    assert "not the source's list" in next(algorithm_list.PART.complaints(page, stale, ROOT))
    no_marks = text.replace(written_part.END, "")
    assert "lacks" in next(algorithm_list.PART.complaints(page, no_marks, ROOT))
