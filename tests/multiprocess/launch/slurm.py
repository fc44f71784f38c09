# SPDX-License-Identifier: Apache-2.0
"""A Slurm of one machine, of Debian's packages, with everything of it in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from ciuic.run import processes

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo", "scontrol")
PACKAGES = "munge slurmctld slurmd slurm-client libpmix-dev"
START_S = 60
END_S = 10

_CONFIG = """\
ClusterName=ciuic
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
PropagateResourceLimits=NONE
ReturnToService=2
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str | None:
    """Why there can be no Slurm here; None where there can."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        return f"no {', '.join(missing)} here (apt-get install {PACKAGES})"
    if os.geteuid() != 0:
        return "a Slurm of our own needs root"
    return None


class Slurm:
    """Runs from the constructor on until :meth:`stop`.

    The ports are chosen by binding 0, and held, bound but without listening, as long as it runs:
    the daemons set SO_REUSEADDR and can bind them beside that, and nobody else is given them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._holders = [_held_port() for _ in range(2)]
        self._daemons: list[subprocess.Popen[bytes]] = []
        folder.mkdir(mode=0o755)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        ctld_port, slurmd_port = (holder.getsockname()[1] for holder in self._holders)
        host = socket.gethostname().partition(".")[0]
        self.config = folder / "slurm.conf"
        self.config.write_text(
            _CONFIG.format(folder=folder, host=host, ctld_port=ctld_port, slurmd_port=slurmd_port)
        )
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def environment(self, inherited: dict[str, str]) -> dict[str, str]:
        """For srun and sbatch."""
        return {**inherited, "SLURM_CONF": str(self.config)}

    def _start(self) -> None:
        # --force: the folder need not be root's alone, as /etc/munge would be.
        files = {"pid": "pid-file", "log": "log-file", "seed": "seed-file", "key": "key-file"}
        own = [f"--{option}={self.folder}/munge.{end}" for end, option in files.items()]
        own.append(f"--socket={self.folder}/munge.sock")
        self._daemon("munged", "--foreground", "--force", *own)
        self._wait_for(lambda: (self.folder / "munge.sock").exists(), "munged's socket")
        self._daemon("slurmctld", "-D", "-f", str(self.config))
        self._daemon("slurmd", "-D", "-f", str(self.config))
        self._wait_for(lambda: self._asked("sinfo", "-h", "-o", "%t") == "idle", "an idle node")

    def _daemon(self, *command: str) -> None:
        path = f"{os.environ.get('PATH', '')}:/usr/sbin"
        with open(self.folder / f"{command[0]}.out", "wb") as output:
            self._daemons.append(
                subprocess.Popen(
                    command,
                    # What they start inherits it, which tells it from another Slurm's.
                    env={"PATH": path, "LC_ALL": "C", "SLURM_CONF": str(self.config)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    preexec_fn=processes.child_setup(),  # killed with us, whatever ends us
                )
            )

    def _asked(self, *command: str) -> str:
        done = subprocess.run(
            command,
            env=self.environment(dict(os.environ)),
            capture_output=True,
            text=True,
            timeout=START_S,
        )
        return done.stdout.strip()

    def _wait_for(self, condition, what: str) -> None:  # type: ignore[no-untyped-def]
        deadline = time.monotonic() + START_S
        while not condition():
            dead = [d.args[0] for d in self._daemons if d.poll() is not None]  # type: ignore[index]
            if dead or time.monotonic() >= deadline:
                raise RuntimeError(f"Slurm: no {what} ({dead or 'in time'})\n{self.logs()}")
            time.sleep(0.02)

    def logs(self) -> str:
        """The end of what the daemons have said."""
        names = sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")])
        return "\n".join(f"== {n.name}\n{n.read_text(errors='replace')[-3000:]}" for n in names)

    def stop(self) -> None:
        """No process of it is left then, and no step that it has started."""
        for daemon in reversed(self._daemons):
            with contextlib.suppress(ProcessLookupError):
                daemon.terminate()
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(END_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._end_rest()
        for holder in self._holders:
            holder.close()

    def _end_rest(self) -> None:
        """Steps, and slurmctld's script runner, are in sessions of their own."""
        mark = f"SLURM_CONF={self.config}".encode()
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            with contextlib.suppress(OSError):
                descriptor = os.pidfd_open(pid)
                try:
                    with open(f"/proc/{pid}/environ", "rb") as file:
                        if mark in file.read().split(b"\0"):
                            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                finally:
                    os.close(descriptor)


def _held_port() -> socket.socket:
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    holder.bind(("", 0))
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return holder


def run_batch(slurm: Slurm, words: Sequence[str], environment: dict[str, str]) -> str:
    """Submits a script, and gives the state of its job at the end. `sbatch --wait` would look for
    it every ten seconds."""
    submitted = run(slurm, ["sbatch", "--parsable", *words], environment)
    assert submitted.returncode == 0, submitted.stderr
    show = ["scontrol", "--oneliner", "show", "job", submitted.stdout.strip()]
    deadline = time.monotonic() + START_S
    while True:
        shown = run(slurm, show, environment).stdout
        state = dict(word.partition("=")[::2] for word in shown.split()).get("JobState", "UNKNOWN")
        if state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
            return state
        assert time.monotonic() < deadline, f"the job is {state}\n{slurm.logs()}"
        time.sleep(0.05)


def run(slurm: Slurm, words: Sequence[str], environment: dict[str, str], timeout_s: float = 120):
    """srun or sbatch, to its end."""
    return subprocess.run(
        words,
        env=slurm.environment(environment),
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
