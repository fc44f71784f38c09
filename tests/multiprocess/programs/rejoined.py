# SPDX-License-Identifier: Apache-2.0
"""Closes its group and joins it again, under the same name on the same store."""

import numpy
from ciuic import CiuicContext


def main() -> None:
    epochs = []
    for _ in range(5):
        with CiuicContext(group_name="again") as context:
            assert (context.all_reduce(numpy.ones(3)) == context.world_size).all()
            epochs.append(context.describe()["epoch"])
    assert epochs == sorted(set(epochs)), epochs
    print("all good", flush=True)


if __name__ == "__main__":
    main()
