# SPDX-License-Identifier: Apache-2.0
"""Joins with the arguments given as JSON, reduces once, and prints how that went.

The last line is ``joined RANK SIZE``, or the name of the exception, a colon and its message. Where
a descriptor, thread or child process is left after a failure, it says that instead.
"""

import contextlib
import gc
import json
import os
import sys
from collections import Counter

import numpy
from ciuic import CiuicContext, CiuicError


def held() -> Counter[str]:
    """Descriptors by what they are open on, threads and children of this process."""
    gc.collect()
    kinds: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that the listing itself used
            kinds[os.readlink(f"/proc/self/fd/{number}").partition(":[")[0]] += 1
    for thread in os.listdir("/proc/self/task"):
        kinds["thread"] += 1
        with open(f"/proc/self/task/{thread}/children") as file:
            kinds["child"] += len(file.read().split())
    return kinds


def main() -> None:
    arguments = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    before = held()
    try:
        with CiuicContext(**arguments) as context:
            x = numpy.ones(3)
            context.all_reduce(x)
            assert (x == context.world_size).all()
            print(json.dumps(context.describe()))
            print(f"joined {context.rank} {context.world_size}")
        return
    except (CiuicError, ValueError) as error:
        text = f"{type(error).__name__}: {error}"
    left = held() - before
    del left["/memfd:ciuic-trace (deleted)"]  # the flight recorder outlives what led to an error
    if "MASTER_PORT" in os.environ:
        del left["pipe"]  # torch's TCPStore forgets that of a server that could not listen
    print(f"left behind: {dict(left)} after {text}" if left else text)


main()
