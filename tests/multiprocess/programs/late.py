# SPDX-License-Identifier: Apache-2.0
"""A barrier that allows more than the group's time-out; rank 1 comes when its input ends."""

import sys

from ciuic import CiuicContext


def main() -> None:
    context = CiuicContext(timeout_s=1)
    if context.rank == 1:
        sys.stdin.read()
    context.barrier(timeout_s=200)
    context.close()
    print(f"met {context.rank}", flush=True)


if __name__ == "__main__":
    main()
