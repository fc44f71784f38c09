# SPDX-License-Identifier: Apache-2.0
"""docs/api.md says what the code has: every public name, and the signatures as they are."""

import inspect
import re
from pathlib import Path
from typing import Any

import ciuic
import pytest
from ciuic import CiuicContext, ReduceOp

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/api.md").read_text("utf-8")
CODE = {code for cell in re.findall(r"`([^`\n]+)`", PAGE) for code in [cell]}
NAMES = {re.match(r"\w*", code).group() for code in CODE}  # type: ignore[union-attr]
OPERATIONS = re.findall(r"^\| `(\w+)` \|", PAGE.partition("## Signatures")[0], re.MULTILINE)


def default(value: Any) -> str:
    return value.name if isinstance(value, ReduceOp) else repr(value)


def signature(name: str, function: Any) -> str:
    """As the page writes it: no types."""
    words = []
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        if parameter.name == "self":
            continue
        has_default = parameter.default is not parameter.empty
        words.append(parameter.name + (f"={default(parameter.default)}" if has_default else ""))
    return f"{name}({', '.join(words)})"


def test_every_operation_is_there() -> None:
    starting = [name for name in ciuic.__all__ if name.endswith("_async")]
    assert sorted(OPERATIONS) == sorted(name.removesuffix("_async") for name in starting)
    for name in OPERATIONS:
        assert hasattr(CiuicContext, name)
        assert hasattr(CiuicContext, name + "_async")


@pytest.mark.parametrize("name", [n for n in ciuic.__all__ if not n.endswith("_async")])
def test_public_names(name: str) -> None:
    value = getattr(ciuic, name)
    assert name in NAMES, f"docs/api.md does not name {name}"
    if inspect.isfunction(value):
        assert signature(name, value) in CODE, f"docs/api.md has not: {signature(name, value)}"


@pytest.mark.parametrize(
    "name",
    [n for n in dir(CiuicContext) if not n.startswith("_") and n not in ReduceOp.__members__],
)
def test_methods_of_a_context(name: str) -> None:
    value = getattr(CiuicContext, name)
    base = name.removesuffix("_async")
    assert base in NAMES, f"docs/api.md does not name {name}"
    if callable(value) and not hasattr(ciuic, base):
        assert signature(name, value) in CODE, f"docs/api.md has not: {signature(name, value)}"


def test_the_context_itself(ctx: CiuicContext) -> None:
    assert signature("CiuicContext", CiuicContext.__init__) in CODE
    for name in vars(ctx):
        assert name.startswith("_") or name in CODE, name


def test_what_the_page_names_exists() -> None:
    rows = re.findall(r"^\| (`[^|]+) \|", PAGE, re.MULTILINE)
    assert len(rows) > 50
    for cell in rows:
        for code in re.findall(r"`(\w+)", cell):
            assert (
                hasattr(ciuic, code)
                or hasattr(CiuicContext, code)
                or code
                in (
                    "rank",
                    "world_size",
                    "timeout_s",
                    "allow_pickle",
                )
            ), code


def of_header() -> dict[str, list[str]]:
    """Public methods of Communicator: name -> declarations without the type of the result."""
    text = (ROOT / "include/ciuic/communicator.h").read_text("utf-8")
    text = re.sub(r"//[^\n]*", "", text)
    body = text.partition("class CIUIC_EXPORT Communicator {")[2].partition(" private:")[0]
    methods: dict[str, list[str]] = {}
    for statement in re.split(r"[;}]\s*\n", body):
        line = " ".join(statement.split("{\n")[0].split()).removeprefix("public: ")
        found = re.match(r"(?:static )?[\w:]+(?:<.*?>+)? (\w+)(\(.*\))(?: const)?$", line)
        if found:
            methods.setdefault(found.group(1), []).append(found.group(1) + found.group(2))
    return methods


def test_signatures_of_cplusplus() -> None:
    methods = of_header()
    assert set(OPERATIONS) <= set(methods)
    assert {"create", "submit", "persistent", "subgroup", "split", "close"} <= set(methods)
    for name, declarations in methods.items():
        for declaration in declarations:
            assert declaration in CODE, f"docs/api.md has not: {declaration} of {name}"
