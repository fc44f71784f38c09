#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the house rules that a machine can hold: layers, sizes, file heads, names.

``tidy.py`` looks at every file of the tree and prints ``file:line: complaint``; it exits with 1
where there is one. A file that must break a size is named in SIZE_EXEMPT, with the reason.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import tidy_cpp

# The layer law: a folder of src may include those of the rows before its own; not its siblings.
LAYERS = [
    ["base"],
    ["trace", "wire", "kernels", "plan", "drivers"],
    ["memory", "security", "topology"],
    ["transport", "bootstrap", "tuner"],
    ["engine"],
    ["collective"],
    ["backend"],
    ["communicator"],
    ["sim"],
]
LAYER_OF = {folder: layer for layer, row in enumerate(LAYERS) for folder in row}
LEAF = "sim"  # nothing else includes it
LEAF_READER = "python/native/"  # save this: ciuic.plan.simulate()

# What every layer may include of the public headers. The rest is for the right end of the law.
VALUE_HEADERS = {
    "buffer",
    "call",
    "dtype",
    "export",
    "options",
    "plan",
    "status",
    "store",
    "version",
    "work",
}
PUBLIC_HEADERS_FROM = LAYER_OF["communicator"]

HEADER_LINES, SOURCE_LINES, FUNCTION_LINES, COLUMNS, README_LINES = 250, 500, 70, 100, 40

# Data tables and the like: path -> why it may be longer.
SIZE_EXEMPT: dict[str, str] = {}

FORBIDDEN_WORDS = {"util", "utils", "helper", "helpers", "common", "manager", "impl2", "misc"}
ENVIRONMENT_READER = "src/base/config.cc"
ENVIRONMENT = re.compile(r"\b(?:secure_)?getenv\b|\benviron\b")
ONE_MACHINE = re.compile(r"(?<![\w.)}~])/(?:work|root|home)/\w")  # nobody else has such a path

CPP = (".h", ".cc")
PYTHON = (".py", ".pyi")


@dataclass
class File:
    """One file of the tree; `path` is relative to its root."""

    path: str
    text: str
    lines: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.lines = self.text.splitlines()

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.path).suffix

    @property
    def folder(self) -> str:
        """`plan` of `src/plan/ring.cc`; empty elsewhere."""
        parts = PurePosixPath(self.path).parts
        return parts[1] if len(parts) > 2 and parts[0] == "src" else ""

    @property
    def is_test(self) -> bool:
        return self.path.startswith("tests/") or "_test." in self.name or self.name[:5] == "test_"


@dataclass(order=True)
class Complaint:
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def check_layers(file: File) -> Iterator[Complaint]:
    if file.suffix not in CPP:
        return
    public = file.path.startswith("include/")
    layer = LAYER_OF.get(file.folder, len(LAYERS))
    if file.folder and file.folder not in LAYER_OF:
        yield Complaint(file.path, 1, f"src/{file.folder} has no place in the layer law")
    for include in tidy_cpp.includes(file.text):
        parts = include.path.split("/")
        target = parts[0]
        reason = ""
        if target == "ciuic":
            stem = PurePosixPath(include.path).stem
            if file.folder and layer < PUBLIC_HEADERS_FROM and stem not in VALUE_HEADERS:
                reason = "only value headers of include/ciuic may be included here"
        elif public and (not include.system or "/" in include.path or "." in include.path):
            reason = "a public header includes ciuic/ and the C++ library alone"
        elif include.system or target not in LAYER_OF or len(parts) == 1:
            continue
        elif target == LEAF and not (file.folder == LEAF or file.path.startswith(LEAF_READER)):
            reason = f"nothing includes {LEAF}"
        elif file.folder and file.folder != target and LAYER_OF[target] >= layer:
            reason = f"{file.folder} may include only what stands left of it in the layer law"
        elif file.folder == target == "transport" and len(parts) > 2:
            own = PurePosixPath(file.path).parts[2:-1]
            fixture = not own and file.is_test  # what the tests of all transports share
            if not fixture and (not own or own[0] != parts[1]):
                reason = "no transport includes another"
        if reason:
            yield Complaint(file.path, include.line, f"{include.path}: {reason}")


def _python_functions(file: File) -> Iterator[tuple[str, int, int]]:
    """Name, first line and number of lines, docstrings not counted."""
    for node in ast.walk(ast.parse(file.text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node, clean=False) is not None:
                lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            yield node.name, node.lineno, lines


def check_sizes(file: File) -> Iterator[Complaint]:
    if file.suffix not in CPP + PYTHON or file.path in SIZE_EXEMPT:
        return
    limit = HEADER_LINES if file.suffix == ".h" else SOURCE_LINES
    if len(file.lines) > limit:
        yield Complaint(file.path, limit, f"{len(file.lines)} lines, {limit} at most")
    for number, line in enumerate(file.lines, start=1):
        if len(line) > COLUMNS:
            yield Complaint(file.path, number, f"{len(line)} columns, {COLUMNS} at most")
    if file.suffix in CPP:
        spans = [(f.name, f.first_line, f.lines) for f in tidy_cpp.functions(file.text)]
    else:
        spans = list(_python_functions(file))
    for name, first, count in spans:
        if count > FUNCTION_LINES:
            yield Complaint(file.path, first, f"{name}: {count} lines, {FUNCTION_LINES} at most")


def check_head(file: File) -> Iterator[Complaint]:
    """One SPDX line, then what the file is for."""
    script = file.lines[:1] and file.lines[0].startswith("#!")
    build = file.name in ("CMakeLists.txt", "Makefile") or file.suffix in (".cmake", ".toml")
    if not (file.suffix in (*CPP, *PYTHON, ".sh") or script or build):
        return
    head = file.lines[1:] if script else file.lines
    mark = "//" if file.suffix in CPP else "#"
    if not head or head[0] != f"{mark} SPDX-License-Identifier: Apache-2.0":
        yield Complaint(file.path, 1, f"begins with '{mark} SPDX-License-Identifier: Apache-2.0'")
        return
    if build:
        return
    second = head[1] if len(head) > 1 else ""
    if file.suffix in CPP and not second.startswith(f"// {file.name}: "):
        yield Complaint(file.path, 2, f"says what it is for: '// {file.name}: ...'")
    if file.suffix == ".py" and not second.startswith(('"""', 'r"""', "#")):
        yield Complaint(file.path, 2, "says what it is for, in a docstring after the SPDX line")
    if mark == "#" and file.suffix not in PYTHON and not second.startswith("# "):
        yield Complaint(file.path, 2, "says what it is for, in a comment after the SPDX line")
    once = "#pragma once" in file.lines or "HWY_TARGET_TOGGLE" in file.text  # once a SIMD target
    if file.suffix == ".h" and not once:
        yield Complaint(file.path, 1, "has no #pragma once")


def check_names(file: File) -> Iterator[Complaint]:
    if file.suffix not in (*CPP, *PYTHON, ".sh"):
        return
    for part in PurePosixPath(file.path).parts:
        for word in FORBIDDEN_WORDS & set(re.split(r"[_.\-]", part.lower())):
            yield Complaint(file.path, 1, f"'{word}' in a name says nothing; name what is in it")


def check_environment(file: File) -> Iterator[Complaint]:
    inner = file.path.startswith(("src/", "include/", "python/"))
    if file.suffix not in CPP or not inner or file.is_test or file.path == ENVIRONMENT_READER:
        return
    for number, line in enumerate(tidy_cpp.code_only(file.text).splitlines(), start=1):
        if ENVIRONMENT.search(line):
            yield Complaint(file.path, number, f"only {ENVIRONMENT_READER} reads the environment")


def check_paths(file: File) -> Iterator[Complaint]:
    if file.path == "tools/tidy_test.py":
        return
    for number, line in enumerate(file.lines, start=1):
        if ONE_MACHINE.search(line):
            yield Complaint(file.path, number, "a path that only one machine has")


def check_readmes(files: list[File]) -> Iterator[Complaint]:
    readmes = {str(PurePosixPath(f.path).parent): f for f in files if f.name == "README.md"}
    for folder in sorted({f.folder for f in files if f.folder}):
        if f"src/{folder}" not in readmes:
            yield Complaint(f"src/{folder}/README.md", 1, "is missing")
    for readme in readmes.values():
        if readme.folder and len(readme.lines) > README_LINES:
            text = f"{len(readme.lines)} lines, {README_LINES} at most"
            yield Complaint(readme.path, README_LINES, text)


def _python_tests(file: File) -> Iterator[tuple[str, int]]:
    """Tests by file, class and name: pytest runs only the last of two that share them."""
    tree = ast.parse(file.text)
    scopes = [("", tree.body)]
    scopes += [(f"{node.name}.", node.body) for node in tree.body if isinstance(node, ast.ClassDef)]
    for prefix, body in scopes:
        for node in body:
            functions = (ast.FunctionDef, ast.AsyncFunctionDef)
            if isinstance(node, functions) and node.name.startswith("test_"):
                yield f"{file.name}::{prefix}{node.name}", node.lineno


def check_test_names(files: list[File]) -> Iterator[Complaint]:
    seen: dict[str, str] = {}
    for file in files:
        if file.suffix == ".cc":
            names = tidy_cpp.tests(file.text)
        elif file.suffix == ".py" and file.is_test:
            names = list(_python_tests(file))
        else:
            continue
        for name, line in names:
            if name in seen:
                yield Complaint(file.path, line, f"test {name} is also in {seen[name]}")
            seen.setdefault(name, f"{file.path}:{line}")


def check_exemptions(files: list[File]) -> Iterator[Complaint]:
    for path in SIZE_EXEMPT.keys() - {file.path for file in files}:
        yield Complaint("tools/tidy.py", 1, f"exempts {path}, which is not there")


FILE_CHECKS: list[Callable[[File], Iterator[Complaint]]] = [
    check_layers,
    check_sizes,
    check_head,
    check_names,
    check_environment,
    check_paths,
]
TREE_CHECKS: list[Callable[[list[File]], Iterator[Complaint]]] = [
    check_readmes,
    check_test_names,
    check_exemptions,
]


def complaints(files: list[File]) -> list[Complaint]:
    found = [complaint for file in files for check in FILE_CHECKS for complaint in check(file)]
    found += [complaint for tree_check in TREE_CHECKS for complaint in tree_check(files)]
    return sorted(found)


def read_tree(root: Path) -> list[File]:
    """What git tracks or would track, as far as it is text."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    files = []
    for path in sorted(set(listed.split("\0")) - {""}):
        if (root / path).is_file():
            try:
                files.append(File(path, (root / path).read_text(encoding="utf-8")))
            except UnicodeDecodeError:
                continue
    return files


def main() -> int:
    files = read_tree(Path(__file__).resolve().parent.parent)
    found = complaints(files)
    for complaint in found:
        print(complaint)
    print(f"tidy: {len(files)} files, {len(found)} complaints", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
