# SPDX-License-Identifier: Apache-2.0
"""Joins with the arguments given as JSON, reduces once, and prints how that went.

The last line is ``joined RANK SIZE``, or the name of the exception, a colon and its message.
"""

import json
import sys

import numpy
from ciuic import CiuicContext, CiuicError


def main() -> None:
    arguments = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    try:
        with CiuicContext(**arguments) as context:
            x = numpy.ones(3)
            context.all_reduce(x)
            assert (x == context.world_size).all()
            print(json.dumps(context.describe()))
            print(f"joined {context.rank} {context.world_size}")
    except (CiuicError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")


main()
