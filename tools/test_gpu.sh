#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_gpu.sh: the tests of a real GPU (tests/gpu), meant for 10 minutes at most; `make test-gpu`.
#
# It needs an NVIDIA GPU with its driver, and a Python environment that has torch's CUDA build, which
# brings CUDA's runtime and NCCL, and this package. `make setup` makes one with torch's CPU build, so
# make another:
#
#   python3 -m venv .venv-gpu
#   .venv-gpu/bin/pip install torch==2.13.0
#   .venv-gpu/bin/pip install '.[train,test]'      # `make system` first, to build it
#
# GPU_PYTHON names another interpreter than .venv-gpu/bin/python. Arguments are pytest's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${GPU_PYTHON:-.venv-gpu/bin/python}

fail() {
  printf 'test_gpu.sh: %s\n' "$1" >&2
  sed -n '/^# It needs/,/^# GPU_PYTHON/s/^# \?//p' "${BASH_SOURCE[0]}" >&2
  exit 1
}

[[ -x $python ]] || fail "there is no $python"
"$python" - <<'END' || fail "$python does not do"
import sys
try:
    import ciuic, torch, transformers, pytest, pytest_timeout
except ImportError as error:
    sys.exit(f"{error}")
if not torch.cuda.is_available():
    sys.exit(f"torch {torch.__version__} finds no CUDA GPU")
print(f"ciuic {ciuic.__version__}, torch {torch.__version__}, CUDA {torch.version.cuda}, NCCL "
      f"{'.'.join(map(str, torch.cuda.nccl.version()))}, {torch.cuda.device_count()} GPUs: "
      f"{torch.cuda.get_device_name(0)}")
END

# The summary names each test, and what has become of it.
exec "$python" -m pytest tests/gpu -p no:cacheprovider -q -rA --show-capture=no "$@"
