# SPDX-License-Identifier: Apache-2.0
"""run_checks.py FILE FOLDER: one rank of a run of checks; see conftest.py."""

import datetime
import faulthandler
import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path

import fake_gpus

# "one" is for all ranks, or each has its "own". Fakes come before torch.
GPUS = os.environ.get("FAKE_GPUS")
REAL_GPUS = os.environ.get("REAL_GPUS")
if GPUS:
    cuda_runtime = fake_gpus.preload(os.environ["FAKE_GPU_LIBRARY"])

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

LEFT_OUT = os.environ.get("LEFT_OUT", "").split(",")
TIMEOUT = datetime.timedelta(seconds=60)


def main() -> None:
    file, folder = Path(sys.argv[1]), Path(sys.argv[2])
    faulthandler.dump_traceback_later(250, exit=True)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if GPUS or REAL_GPUS:
        device = 0 if "one" in (GPUS, REAL_GPUS) else rank
        if GPUS:
            assert cuda_runtime.cudaSetDevice(device) == 0
        else:
            torch.cuda.set_device(device)
        torch.set_default_device(f"cuda:{device}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    checks = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = checks
    sys.path.insert(0, str(file.parent))
    spec.loader.exec_module(checks)
    store = dist.FileStore(str(folder / "store"), size)
    store.set_timeout(TIMEOUT)
    if getattr(checks, "INITIALISES", True):
        dist.init_process_group("ciuic", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    else:
        checks.STORE, checks.RANK, checks.SIZE = store, rank, size
    with (folder / f"{rank}.jsonl").open("w") as said:
        for name, check in list(vars(checks).items()):
            if not name.startswith("check_") or name in LEFT_OUT:
                continue
            try:
                check()
                outcome = "passed"
            except BaseException:
                outcome = traceback.format_exc()
            said.write(json.dumps([name, outcome]) + "\n")
            said.flush()
            # Ranks do not go on where one has failed: what follows would only confuse.
            store.set(f"{name}/{rank}", outcome)
            outcomes = [store.get(f"{name}/{peer}").decode() for peer in range(size)]
            if outcomes != ["passed"] * size:
                break
    if dist.is_initialized():
        dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
