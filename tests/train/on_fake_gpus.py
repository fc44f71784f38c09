# SPDX-License-Identifier: Apache-2.0
"""One rank of gpu_test.py: trains on the CPU, then on a fake GPU; prints the losses of both."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "torch_backend"), str(HERE.parents[1] / "examples")]

import fake_gpus  # noqa: E402

runtime = fake_gpus.preload(os.environ["FAKE_GPU_LIBRARY"])

import torch  # noqa: E402
import train_jobs as jobs  # noqa: E402
from deepseek import communicator  # noqa: E402
from deepseek.training import Trainer  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from train_ranks import options  # noqa: E402


def main() -> None:
    chosen = options(" ".join(sys.argv[1:]))
    number = int(os.environ["RANK"])
    assert runtime.cudaSetDevice(number) == 0
    comm = communicator.join("ciuic")
    losses = []
    for device in (torch.device("cpu"), torch.device("cuda", number)):
        trainer = Trainer(chosen, comm, jobs.corpus(), device)
        trainer.check_alike()
        with sdpa_kernel(SDPBackend.MATH):  # CUDA's own kernels are not there
            losses.append([trainer.step().loss, trainer.step().loss, trainer.validate()])
        assert {value.device for value in trainer.model.state_dict().values()} == {device}
    if comm.rank == 0:
        print("losses", json.dumps(losses), comm.describe())
    comm.close()


main()
