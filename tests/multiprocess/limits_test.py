# SPDX-License-Identifier: Apache-2.0
"""Machines with too little of something, and many jobs on one: it works, or the error says what to
raise.
"""

import os
import shutil
import socket
import subprocess
import sys

import pytest

TIMEOUT_S = 240
DEFAULT_MASTER_PORT = 29500


def test_a_small_dev_shm_changes_nothing(environment, programs) -> None:
    """Containers have 64 MiB there, or less."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a mount namespace needs root and the command unshare (util-linux)")
    script = (
        "mount -t tmpfs -o size=1m tmpfs /dev/shm || exit 99\n"
        "test $(df --output=size -k /dev/shm | tail -1) = 1024 || exit 98\n"
        'exec "$@"\n'
    )
    run = [sys.executable, "-m", "ciuic", "run", "-n", "2", "--"]
    program = [str(programs / "operations.py"), "--transports", "shm"]
    result = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *run, *program],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if result.returncode == 99 or "unshare failed" in result.stderr:
        pytest.skip(f"no mount namespaces here: {result.stderr.strip()}")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("all good") == 2


def test_too_little_memory(ciuic_run) -> None:
    result = ciuic_run(2, "little_memory.py")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("all good") == 2


def test_while_the_default_port_is_bound(ciuic_run) -> None:
    """Another job, or what is left of one, has torch's default port."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("", DEFAULT_MASTER_PORT))
            other.listen()
        except OSError:
            pass  # another job really has it
        assert_joined(ciuic_run(2, "join.py"), 2)


def assert_joined(result: "subprocess.CompletedProcess[str]", ranks: int) -> None:
    assert result.returncode == 0, result.stdout + result.stderr
    for rank in range(ranks):
        assert f"joined {rank} {ranks}" in result.stdout


@pytest.mark.slow
def test_twenty_jobs_at_once(environment, programs) -> None:
    command = [sys.executable, "-m", "ciuic", "run", "-n", "2", "--", str(programs / "join.py")]
    jobs = [
        subprocess.Popen(
            command,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(20)
    ]
    try:
        for job in jobs:
            out, err = job.communicate(timeout=TIMEOUT_S)
            assert_joined(subprocess.CompletedProcess(command, job.returncode, out, err), 2)
    finally:
        for job in jobs:
            if job.poll() is None:
                job.terminate()
            job.communicate()
