# SPDX-License-Identifier: Apache-2.0
"""Where the wheels of NVIDIA's libraries lie."""

import sys
from pathlib import Path

import pytest
from ciuic import nvidia


def test_libraries_of_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nccl/lib/libnccl.so.2", "cuda_runtime/lib/libcudart.so.12"):
        library = tmp_path / "nvidia" / name
        library.parent.mkdir(parents=True)
        library.touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    cuda, nccl = nvidia.libraries()
    assert cuda == str(tmp_path / "nvidia/cuda_runtime/lib/libcudart.so.12")
    assert nccl == str(tmp_path / "nvidia/nccl/lib/libnccl.so.2")


def test_no_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    assert nvidia.libraries() == ("", "")
