# SPDX-License-Identifier: Apache-2.0
"""Which MPI library the backend ``"mpi"`` takes, and what the core must know of it.

A program that has imported ``mpi4py.MPI`` has its MPI, and that one is taken. Else a library with
the ABI of MPI 5 (``libmpi_abi.so.1``): what ``CIUIC_MPI_LIBRARY`` names, this environment's (the
wheel ``mpich``), that of the ``mpiexec`` on ``PATH``, or the loader's. Else, and under the launcher
of Open MPI, which has no such library yet, ``mpi4py`` is imported.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from ciuic import _native
from ciuic.errors import InvalidArgumentError, UnavailableError

_ABI_LIBRARY = "libmpi_abi.so.1"

# By DataType of the core, and by ReduceOp.
_TYPES = (
    *("FLOAT", "DOUBLE", "INT8_T", "UINT8_T", "INT16_T", "UINT16_T"),
    *("INT32_T", "UINT32_T", "INT64_T", "UINT64_T"),
)
_OPS = ("SUM", "MIN", "MAX", "PROD", "BAND", "BOR", "BXOR")
_NUMBERS = ("ANY_SOURCE", "ANY_TAG", "THREAD_SERIALIZED", "THREAD_MULTIPLE", "TAG_UB")


def found(mpi_comm: Any = None) -> dict[str, Any]:
    """Arguments of ``_native.create_communicator`` about MPI.

    Raises:
        ValueError: ``mpi_comm`` is no intracommunicator of mpi4py's.
        ciuic.UnavailableError: No library; the message says what was tried.
    """
    atexit.unregister(_leave)
    atexit.register(_leave)  # the latest comes first, before mpi4py's
    module = sys.modules.get("mpi4py.MPI")
    if mpi_comm is not None:
        if module is None or not isinstance(mpi_comm, module.Intracomm):
            raise InvalidArgumentError(f"mpi_comm={mpi_comm!r} is no mpi4py.MPI.Intracomm")
        return _of_mpi4py(module, mpi_comm)
    if module is not None:
        return _of_mpi4py(module)
    libraries = _abi_libraries()
    if os.environ.get("CIUIC_MPI_LIBRARY") or (libraries and not _is_under_open_mpi()):
        return {"mpi_libraries": [*libraries, _ABI_LIBRARY]}
    try:
        return _of_mpi4py(_import_mpi4py())
    except ImportError as error:
        if not _is_under_open_mpi():
            return {"mpi_libraries": [_ABI_LIBRARY]}  # where the loader looks; its words are better
        raise UnavailableError(
            "backend='mpi' under Open MPI's launcher needs mpi4py, since Open MPI has no library "
            f"with the ABI of MPI 5 ({error}); pip install mpi4py, or start with the mpiexec of "
            "MPICH 5 (pip install mpich)"
        ) from None
    except RuntimeError as error:  # mpi4py found no library
        raise UnavailableError(
            f"backend='mpi': mpi4py finds no MPI library ({error}); put it on LD_LIBRARY_PATH, or "
            "name it in MPI4PY_LIBMPI. Or pip install mpich"
        ) from None


def _is_under_open_mpi() -> bool:
    return "OMPI_COMM_WORLD_SIZE" in os.environ


def _abi_libraries() -> list[str]:
    """Paths that are there."""
    folders = [Path(sys.prefix)]
    if mpiexec := shutil.which("mpiexec"):
        folders.append(Path(mpiexec).resolve().parents[1])
    paths = [folder / "lib" / _ABI_LIBRARY for folder in folders]
    return [str(path) for path in paths if path.exists()]


def _import_mpi4py() -> Any:
    """Has mpi4py take the launcher's library, where it says where it lies."""
    told = False
    if _is_under_open_mpi() and not os.environ.get("MPI4PY_LIBMPI"):
        prefix = os.environ.get("OPAL_PREFIX") or os.environ.get("PMIX_PREFIX") or "/nonexistent"
        for library in Path(prefix).glob("lib*/libmpi.so.40"):
            os.environ["MPI4PY_LIBMPI"] = str(library)
            told = True
    try:
        from mpi4py import MPI
    finally:
        if told:
            del os.environ["MPI4PY_LIBMPI"]
    return MPI


def _of_mpi4py(module: Any, mpi_comm: Any = None) -> dict[str, Any]:
    bits = 8 * module._sizeof(module.Comm)

    def handle(thing: Any) -> int:
        value: int = module._handleof(thing) % (1 << bits)
        return value - (1 << 64) if value >= 1 << 63 else value

    names = ("COMM_WORLD", "BYTE", "ERRORS_RETURN", *_TYPES, *_OPS)
    constants = {name: handle(getattr(module, name)) for name in names}
    constants |= {name: int(getattr(module, name)) for name in _NUMBERS}
    constants["IN_PLACE"] = int(module.IN_PLACE)
    constants["HANDLE_BYTES"] = bits // 8
    status = module.Status()
    constants["STATUS_BYTES"] = module._sizeof(status)
    constants["SOURCE_OFFSET"] = _offset(module, status.Set_source)
    constants["TAG_OFFSET"] = _offset(module, status.Set_tag)
    return {
        # The loader finds in it what it was itself loaded with.
        "mpi_libraries": [module.__file__],
        "mpi_constants": constants,
        "mpi_communicator": 0 if mpi_comm is None else handle(mpi_comm) % (1 << 64),
        "on_this_thread": module.Query_thread() < module.THREAD_SERIALIZED,
    }


def _offset(module: Any, set_number: Any) -> int:
    """Where in a status the number stands that ``set_number`` sets."""
    status = set_number.__self__
    size = module._sizeof(status)
    address = module._addressof(status)
    mark = (0x5A17C0DE).to_bytes(4, sys.byteorder)
    set_number(int.from_bytes(mark, sys.byteorder))
    offset = ctypes.string_at(address, size).find(mark)
    set_number(0)
    if offset < 0:
        raise UnavailableError("backend='mpi': this MPI's status is not understood")
    return offset


def _leave() -> None:
    """Before mpi4py finalises MPI, which would wait for ever for an operation that has failed."""
    context = sys.modules.get("ciuic.context")
    with contextlib.suppress(Exception):
        if context is not None:
            context.close_contexts()
    _native.leave_mpi()
