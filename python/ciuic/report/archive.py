# SPDX-License-Identifier: Apache-2.0
"""The file: members of one folder in a ``.tar.gz``, after a last look for secrets."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path

from ciuic.errors import InvalidArgumentError
from ciuic.report.strip import Stripper

FOLDER = "ciuic-report"

README = """\
A report of Ciuic, by `ciuic report`. It was written to a file, and sent nowhere.

Taken out: values of variables and settings that are named like secrets, wherever they stood;
passwords in URLs; what looks like a token or a long hex number; users' names; home directories.
Of the environment there are only variables of Ciuic, NCCL, Gloo and launchers.
Still in it: names and addresses of this machine and of those that it was told of, sizes and times
of operations, names of groups. Read it before you give it away.
"""


def default_name() -> str:
    """ "ciuic-report-20250131-235959.tar.gz"."""
    return time.strftime("ciuic-report-%Y%m%d-%H%M%S.tar.gz")


def write(path: Path, members: Mapping[str, bytes], stripper: Stripper) -> tuple[list[str], int]:
    """Writes what has no secret in it, to a new file that its owner alone can read.

    Returns:
        The names of the members that were left out, since a secret was still in them; and the
        bytes of the file.

    Raises:
        ValueError: The file is there already, or cannot be written.
    """
    left_out = [name for name, data in members.items() if stripper.finds_in(data)]
    kept = {name: data for name, data in members.items() if name not in left_out}
    kept["README.txt"] = README.encode()
    memory = io.BytesIO()
    # Without the names that tar and gzip would write down: of the user, of the file.
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=memory) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, data in sorted(kept.items()):
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size = len(data)
            entry.mtime = int(time.time())
            entry.mode = 0o600
            tar.addfile(entry, io.BytesIO(data))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise InvalidArgumentError(f"{path}: {error.strerror}") from None
    try:
        with open(descriptor, "wb") as file:
            file.write(memory.getvalue())
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink()
        raise InvalidArgumentError(f"{path}: {error.strerror}") from None
    return left_out, len(memory.getvalue())
