# SPDX-License-Identifier: Apache-2.0
"""A program that is started by a rank has none of the library's descriptors, nor those of the
launcher; a child that is forked has none of its sockets.
"""

import os
import stat
import subprocess
import sys
import threading

import numpy
from ciuic import CiuicContext

SHOW = "import os; print(sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:-1])"


def of_a_program() -> str:
    """The descriptors with which a program starts that may keep all of them."""
    return subprocess.run(
        [sys.executable, "-S", "-c", SHOW], close_fds=False, capture_output=True, text=True
    ).stdout


def sockets() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.add(int(name))
        except OSError:
            continue  # the listing's own
    return found


def sockets_of_a_forked_child() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(len(sockets() - sockets_before))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


sockets_before = sockets()
CiuicContext(timeout_s=100).barrier()  # takes what the launcher gave
before = of_a_program()
assert before.strip() == "[0, 1, 2]", before

# While groups are made, too.
over = threading.Event()
seen: set[str] = set()


def look() -> None:
    while not over.is_set():
        seen.add(of_a_program())


looker = threading.Thread(target=look)
looker.start()
for _ in range(30):
    CiuicContext(timeout_s=100).barrier()
over.set()
looker.join()
assert seen <= {before}, seen

ctx = CiuicContext(timeout_s=100)
for _ in range(3):
    ctx.all_reduce(numpy.ones(100_000))
assert len(os.listdir("/proc/self/fd")) > 3 + len(sockets_before)
assert of_a_program() == before
if ctx.world_size > 1:
    assert sockets() - sockets_before
    assert sockets_of_a_forked_child() == 0
ctx.barrier()
print("all good", flush=True)
