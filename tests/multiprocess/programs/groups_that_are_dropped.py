# SPDX-License-Identifier: Apache-2.0
"""Makes and drops groups, every other one without ``close``, and says what they left behind.

Arguments: how many groups before the first look, and how many after it.
"""

import gc
import os
import sys
import time

import numpy
from ciuic import CiuicContext

MOST_KIB = 2048  # of 500 groups: 4 KiB each would be a leak, and the allocator's own sway is less


def held() -> dict[str, int]:
    gc.collect()
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": int(fields["Threads"]),
        "KiB": int(fields["VmRSS"].split()[0]),
    }


def use_one_group(number: int) -> None:
    context = CiuicContext(timeout_s=120)
    x = numpy.full(5000, context.rank + 1.0)
    context.all_reduce(x)
    assert x[0] == context.world_size * (context.world_size + 1) / 2
    context.barrier()
    if number % 2:
        context.close()


def main() -> None:
    warm_up, groups = int(sys.argv[1]), int(sys.argv[2])
    for number in range(warm_up):
        use_one_group(number)
    before = held()
    for number in range(groups):
        use_one_group(number)
    most = {**before, "KiB": before["KiB"] + MOST_KIB}
    deadline = time.monotonic() + 20
    while any((after := held())[what] > most[what] for what in most):
        # The last farewell may still be on its way to a peer.
        assert time.monotonic() < deadline, f"{before} became {after}"
        time.sleep(0.01)
    print(f"as before: {before} {after}")


main()
