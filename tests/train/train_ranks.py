# SPDX-License-Identifier: Apache-2.0
"""Run a function on N ranks, each a process, and return what it returned on each.

The processes are forked from one that has imported torch and the model already, so that a test
does not pay for that once a rank. The functions are those of ``train_jobs``: a process finds them
by name.
"""

from __future__ import annotations

import argparse
import multiprocessing
import multiprocessing.forkserver
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

_TIMEOUT_S = 120.0


def run_ranks(
    comm: str, ranks: int, job: Callable[..., Any], *arguments: Any, parallel: str = "ddp"
) -> list[Any]:
    """Return ``job(communicator, *arguments)`` of each rank, in rank order."""
    context = multiprocessing.get_context("forkserver")
    _start_server(context)
    with tempfile.TemporaryDirectory() as folder:
        processes, pipes = [], []
        for rank in range(ranks):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(
                target=_rank_main,
                args=(theirs, comm, parallel, rank, ranks, folder, job, arguments),
            )
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        try:
            answers = [_answer(pipe, rank) for rank, pipe in enumerate(pipes)]
        finally:
            for process in processes:
                process.join(10)
                process.kill()
                process.join()
    failed = [error for _, error in answers if error]
    assert not failed, "\n".join(failed)
    return [value for value, _ in answers]


def _start_server(context: Any) -> None:
    """Start the process that the ranks are forked from, if it does not run yet."""
    context.set_forkserver_preload(["train_jobs"])
    # The server looks for train_jobs in its own path, and takes that from its environment alone.
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    # DDP warns of unused parameters that it did not find in the first step.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _answer(pipe: Any, rank: int) -> tuple[Any, str | None]:
    if not pipe.poll(_TIMEOUT_S):
        return None, f"rank {rank} did not answer within {_TIMEOUT_S:g} s"
    try:
        answer: tuple[Any, str | None] = pipe.recv()
    except EOFError:
        return None, f"rank {rank} died"
    return answer


def _rank_main(
    pipe: Any,
    comm: str,
    parallel: str,
    rank: int,
    ranks: int,
    folder: str,
    job: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    names = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks}
    os.environ.update({name: str(value) for name, value in names.items()})
    os.environ["CIUIC_STORE"] = f"file://{folder}"
    try:
        import torch
        from deepseek.communicator import join

        torch.set_num_threads(1)
        if comm == "gloo" or parallel != "ddp":
            torch.distributed.init_process_group(
                comm, init_method=f"file://{folder}/store", rank=rank, world_size=ranks
            )
        communicator = join(comm, parallel)
        value = job(communicator, *arguments)
        communicator.close()
        pipe.send((value, None))
    except BaseException:
        pipe.send((None, f"rank {rank}: {traceback.format_exc()}"))


def options(line: str = "") -> argparse.Namespace:
    """Return the options of train.py for the command line ``line``."""
    from deepseek.options import parse

    return parse(line.split())
