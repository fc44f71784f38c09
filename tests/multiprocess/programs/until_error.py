# SPDX-License-Identifier: Apache-2.0
"""Calls all_reduce until it fails, and prints the error."""

import json
import sys

import numpy
from ciuic import CiuicContext, CiuicError


def main() -> None:
    context = CiuicContext(**json.loads(sys.argv[1]))
    try:
        for number in range(sys.maxsize):
            context.all_reduce(numpy.ones(10_000))
            if number == 20:
                print("looping", flush=True)
    except CiuicError as error:
        print(f"{type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
