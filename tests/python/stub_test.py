# SPDX-License-Identifier: Apache-2.0
"""_native.pyi says what ciuic._native has: the same names, the same arguments."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import ciuic
from ciuic import _native


def of_stub() -> dict[str, list[str] | None]:
    """Name -> names of the arguments; None for what is no function."""
    found: dict[str, list[str] | None] = {}

    def take(nodes: list[ast.stmt], prefix: str) -> None:
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                found[node.name] = None
                take(node.body, node.name + ".")
            elif isinstance(node, ast.FunctionDef):
                is_property = any(
                    isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list
                )
                arguments = [argument.arg for argument in node.args.args]
                found[prefix + node.name] = None if is_property else arguments
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found[node.target.id] = None

    stub = Path(inspect.getfile(ciuic)).with_name("_native.pyi")
    take(ast.parse(stub.read_text()).body, "")
    return found


def of_module() -> dict[str, list[str] | None]:
    found: dict[str, list[str] | None] = {}

    def take(holder: Any, prefix: str) -> None:
        for name in vars(holder):
            value = getattr(holder, name)
            if name.startswith("__") and name != "__init__":
                continue
            signatures = getattr(value, "__nb_signature__", None)
            if isinstance(value, type):
                found[name] = None
                take(value, name + ".")
            elif signatures:
                text = signatures[0][0]
                arguments = text[text.index("(") + 1 : text.rindex(") ->")]
                found[prefix + name] = re.findall(r"(\w+)(?=:|,|$)(?![^\[]*\])", arguments)
            elif name != "__init__":
                found[prefix + name] = None

    take(_native, "")
    return found


def test_same_names_and_arguments() -> None:
    stub, module = of_stub(), of_module()
    assert sorted(stub) == sorted(module)
    for name, arguments in stub.items():
        if arguments is not None:
            got = [word for word in module[name] or [] if word in arguments]
            assert got == arguments, name
