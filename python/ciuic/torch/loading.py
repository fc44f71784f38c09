# SPDX-License-Identifier: Apache-2.0
"""Finds the backend's library for the torch that is here, and loads it.

c10d's classes change with every minor version of torch, so the library is for one. The package
brings the one for the torch that it was built beside; for another it is built on its first use
(:mod:`ciuic.torch.building`).
"""

from __future__ import annotations

import pathlib

import torch

import ciuic  # loads libciuic.so, which the library is linked with: there is one in the process
from ciuic import _native
from ciuic.errors import UnavailableError
from ciuic.torch import building

OLDEST = (2, 13)
"""The oldest torch that the sources are for."""


def load() -> None:
    """Loads the library.

    Raises:
        ciuic.UnavailableError: A torch that is too old, no compiler to build with, or a library
            that is for other versions than those in this process.
    """
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < OLDEST:
        raise UnavailableError(
            f"the backend 'ciuic' is for torch {OLDEST[0]}.{OLDEST[1]} or newer, and this is "
            f"{torch.__version__}"
        )
    library = shipped()
    if library is None:
        library = building.library()
    torch.ops.load_library(str(library))
    check(library)


def shipped() -> pathlib.Path | None:
    """The library that the package brings for this torch."""
    library = pathlib.Path(_native.__file__).parent / building.file_name()
    return library if library.exists() else None


def check(library: pathlib.Path) -> None:
    """Compares what the library was built for with what is loaded."""
    built_for = torch.ops.ciuic.built_for()
    if built_for.split(".")[:2] != torch.__version__.split(".")[:2]:
        raise UnavailableError(f"{library} is for torch {built_for}, not {torch.__version__}")
    if torch.ops.ciuic.built_for_abi() != torch.ops.ciuic.loaded_abi():
        raise UnavailableError(f"{library} is for another libciuic.so than that of {ciuic}")
