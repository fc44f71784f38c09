# SPDX-License-Identifier: Apache-2.0
"""Ends in the way that its first argument names, on rank 1; the others wait for ever, or fail too.

Each process prints its own number and those of two children that would outlive it, the second in a
session of its own.
"""

import os
import signal
import subprocess
import sys
import threading

rank = int(os.environ["RANK"])
way = sys.argv[1]

children = [subprocess.Popen(["sleep", "1000"], start_new_session=apart) for apart in (False, True)]
print("pids", os.getpid(), *[child.pid for child in children], flush=True)


def wait_for_ever() -> None:
    threading.Event().wait()


if way == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    print("ready", flush=True)
    wait_for_ever()
if way == "wait":
    print("ready", flush=True)
    wait_for_ever()

from ciuic import CiuicContext  # noqa: E402

ctx = CiuicContext(timeout_s=60)
ctx.barrier()
if rank != 1:
    ctx.barrier()  # rank 1 does not come: it is lost
    wait_for_ever()
if way == "error":
    raise ValueError("the cause\nof it all")
if way == "exit":
    sys.exit(7)
if way == "signal":
    os.kill(os.getpid(), signal.SIGKILL)
