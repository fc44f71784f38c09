# SPDX-License-Identifier: Apache-2.0
"""Joins over TCP, and prints the ports that this rank and its launcher have taken."""

import os
import sys

import numpy
from ciuic import CiuicContext


def own_listeners() -> set[int]:
    """The TCP ports at which this process listens."""
    inodes = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the one that the listing itself used
            continue
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    ports = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/self/net/{table}") as file:
            for fields in (line.split() for line in file.readlines()[1:]):
                if fields[3] == "0A" and fields[9] in inodes:  # LISTEN
                    ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


with CiuicContext() as context:
    context.all_reduce(numpy.ones(3))
    ports = own_listeners()
    assert ports, "nobody listens"
    launchers = {int(os.environ["CIUIC_STORE"].rpartition(":")[2]), int(os.environ["MASTER_PORT"])}
    print("ports", *sorted(ports | launchers))
    context.barrier()
sys.exit(0)
