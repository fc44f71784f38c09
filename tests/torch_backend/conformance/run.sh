#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BACKEND PLUGIN WORLD_SIZE OUT [pytest arguments]: PyTorch's distributed suite on a CPU backend.
#
#   run.sh gloo "" 2 gloo-2                        the baseline: gloo-2-ranks.pass.txt
#   ALIAS=gloo run.sh ciuic ciuic.torch 2 ciuic-2  ours
#
# Writes OUT.log, and OUT.passed, a test a line, to be compared. PYTHON names the interpreter; it needs
# torch, numpy, pytest, pytest-timeout, expecttest and hypothesis.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
export BACKEND=$1 PLUGIN=$2 WORLD_SIZE=$3
out=$(realpath -m "$4")
shift 4
TEMP_DIR=$(mktemp -d)
export TEMP_DIR
trap 'rm -rf "$TEMP_DIR"' EXIT
mkdir -p "$TEMP_DIR"/{barrier,test_dir,init_dir}
export INIT_METHOD=file://$TEMP_DIR/init_dir/shared_init_file
export DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=${DISTRIBUTED_TESTS_DEFAULT_TIMEOUT:-60}
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
cd "$here"
status=0
# A folder of its own as root, so that the settings of this project's tests do not hold.
"${PYTHON:-python3}" -m pytest --rootdir "$TEMP_DIR" -c /dev/null -p no:cacheprovider \
  -o python_files='*.py' torch_distributed_suite.py -q -rA --timeout=150 "$@" \
  >"$out.log" 2>&1 || status=$?
sed -n 's/^PASSED .*:://p' "$out.log" | sort >"$out.passed"
tail -n 1 "$out.log"
exit $status
