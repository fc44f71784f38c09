# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors without a GPU: torch's CPU build, on the fake CUDA runtime (tests/fakes).

A process that calls ``preload()`` before it imports torch has devices, streams and memory for
``"cuda"`` tensors, as torch's own CUDA part would give it: ``fake_gpu/`` has the C++, which
``compiled()`` makes on first use. What runs on a device runs later, in its stream; a tensor that is
freed is overwritten, behind the streams that torch's allocator would look at. Operators go by way
of the CPU.
"""

import ctypes
import fcntl
import hashlib
import os
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent / "fake_gpu"


def compiled(build: Path) -> Path:
    """The library for this torch, in CMake's folder ``build``."""
    import torch
    from ciuic.torch import building

    files = sorted(SOURCES.iterdir())
    digest = hashlib.sha256(torch.__version__.encode())
    for file in files:
        digest.update(file.read_bytes())
    place = build / "tests" / "fake_gpu" / f"fake_gpu-{digest.hexdigest()[:16]}.so"
    place.parent.mkdir(parents=True, exist_ok=True)
    torch_folder = Path(torch.__file__).parent
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            made = place.with_suffix(".part")
            command = [
                *building.find_compiler(),
                *("-std=c++20", "-O1", "-fPIC", "-shared", "-w"),
                f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
                *("-isystem", f"{torch_folder}/include"),
                *("-isystem", f"{torch_folder}/include/torch/csrc/api/include"),
                *(str(file) for file in files if file.suffix == ".cc"),
                *("-o", str(made)),
                *(f"-L{torch_folder}/lib", f"-Wl,-rpath,{torch_folder}/lib"),
                *("-ltorch_cpu", "-lc10", "-ldl"),
            ]
            subprocess.run(command, check=True)
            made.rename(place)
    return place


def preload(library: str) -> ctypes.CDLL:
    """Gives this process fake GPUs; returns their runtime, which ``CIUIC_CUDA_LIBRARY`` names."""
    ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    import torch

    torch.cuda._lazy_init = lambda: None  # which would say that this torch has no CUDA
    torch.cuda.get_device_capability = lambda _=None: (9, 0)
    runtime = ctypes.CDLL(os.environ["CIUIC_CUDA_LIBRARY"])
    torch.cuda.set_device = lambda device: runtime.cudaSetDevice(torch.device(device).index)
    return runtime
