# SPDX-License-Identifier: Apache-2.0
"""Several hosts on one machine, for programs that several ranks run."""

import os
import sys


def deal_out() -> None:
    """ "--hosts 2" deals the ranks out to that many hosts, in order. Before the first context."""
    if "--hosts" in sys.argv:
        hosts = int(sys.argv[sys.argv.index("--hosts") + 1])
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        os.environ["CIUIC_HOST_ID"] = f"host-{rank * hosts // size}"
