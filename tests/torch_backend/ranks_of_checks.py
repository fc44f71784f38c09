# SPDX-License-Identifier: Apache-2.0
"""Ranks that call all checks of a file (run_checks.py), and what they have said."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent

# Of operations.py: CUDA tensors are dense, and NCCL has neither tags, nor messages from anybody; of
# messages that are not called together one waits for the other.
NCCL_HAS_NOT = "check_sparse,check_messages,check_messages_by_tag,check_messages_from_anywhere"


class Outcomes:
    """What the ranks of one run have said."""

    def __init__(self, folder: Path, ranks: int, ended: list[int | None]) -> None:
        self._said = [self._read(folder / f"{rank}.jsonl") for rank in range(ranks)]
        self._logs = [(folder / f"{rank}.log").read_text()[-6000:] for rank in range(ranks)]
        self._ended = ended

    @staticmethod
    def _read(file: Path) -> dict[str, str]:
        if not file.exists():
            return {}
        return dict(json.loads(line) for line in file.read_text().splitlines())

    def assert_passed(self, check: str) -> None:
        """Fails with what each rank has to say."""
        for rank, said in enumerate(self._said):
            outcome = said.get(check, f"did not get there; exit status {self._ended[rank]}")
            assert outcome == "passed", f"rank {rank}: {outcome}\n{self._logs[rank]}"

    def assert_all_passed(self) -> None:
        """The same of every check that a rank has come to, which is some."""
        for rank, said in enumerate(self._said):
            failed = {name: text for name, text in said.items() if text != "passed"}
            assert said and not failed, f"rank {rank}: {failed}\n{self._logs[rank]}"

    def assert_ended_well(self) -> None:
        """No rank has crashed, or hung, at its end."""
        assert self._ended == [0] * len(self._ended), "\n".join(self._logs)


def run_ranks(
    file: str,
    ranks: int,
    folder: Path,
    environment_of: Callable[[int], dict[str, str]],
    timeout_s: float,
) -> Outcomes:
    """Runs ``checks/FILE``, each rank in a process with its environment beside RANK, WORLD_SIZE."""
    command = [sys.executable, HERE / "run_checks.py", HERE / "checks" / file, folder]
    processes = []
    for rank in range(ranks):
        places = {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
        with (folder / f"{rank}.log").open("w") as log:
            processes.append(
                subprocess.Popen(
                    command, stdout=log, stderr=log, env={**environment_of(rank), **places}
                )
            )
    ended: list[int | None] = []
    for process in processes:
        try:
            ended.append(process.wait(timeout_s))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            ended.append(None)
    return Outcomes(folder, ranks, ended)
