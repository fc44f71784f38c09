# SPDX-License-Identifier: Apache-2.0
"""Python files that register algorithms, for the command line."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from ciuic.errors import InvalidArgumentError


def import_module(path: str | Path) -> None:
    """Runs a Python file as a module; it may import what lies beside it.

    Raises:
        ciuic.InvalidArgumentError: It is no Python file, or cannot be read.
        Whatever the file itself raises.
    """
    path = Path(path).resolve()
    if path.suffix != ".py" or not path.is_file():
        raise InvalidArgumentError(f"{path} is no Python file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InvalidArgumentError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    folder = str(path.parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
