#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# consumer_test.sh BUILD: installs a build into a temporary prefix and builds a user's program with it,
# once by find_package and once by pkg-config; then the C++ examples, which two ranks run.
set -euo pipefail

build=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix

cmake --install "$build" --prefix "$prefix" --component cxx >"$scratch/install.log"
library=$(find "$prefix" -name 'libciuic.so')
libdir=$(dirname "$library")

echo "-- symbols: nothing but ciuic's own is visible"
strangers=$(nm -DC --defined-only "$library" | grep -vE ' (vtable for |typeinfo for |typeinfo name for |non-virtual thunk to )?ciuic::' || true)
if [ -n "$strangers" ]; then
  echo "$strangers" | head -20
  exit 1
fi

echo "-- find_package"
cmake -S "$here/consumer" -B "$scratch/cmake" -DCMAKE_PREFIX_PATH="$prefix" >"$scratch/configure.log"
cmake --build "$scratch/cmake" >"$scratch/build.log" || { cat "$scratch/build.log"; exit 1; }
"$scratch/cmake/consumer"

echo "-- pkg-config"
export PKG_CONFIG_PATH=$libdir/pkgconfig
read -ra flags <<<"$(pkg-config --cflags --libs ciuic)"
"${CXX:-g++}" -std=c++20 "$here/consumer/consumer.cc" "${flags[@]}" -o "$scratch/consumer"
LD_LIBRARY_PATH=$libdir "$scratch/consumer"

echo "-- examples"
examples=$here/../../examples
cmake -S "$examples" -B "$scratch/examples" -DCMAKE_PREFIX_PATH="$prefix" >"$scratch/configure.log"
cmake --build "$scratch/examples" >"$scratch/build.log" || { cat "$scratch/build.log"; exit 1; }
hello=$scratch/examples/hello_all_reduce
export WORLD_SIZE=2 CIUIC_STORE=file://$scratch/store CIUIC_TIMEOUT_MS=60000
RANK=1 LOCAL_RANK=1 "$hello" >"$scratch/rank1" &
rank1=$!
RANK=0 LOCAL_RANK=0 "$hello" | tee "$scratch/rank0"
wait "$rank1"
grep -qx 'rank 0 of 2: \[3, 6, 9\]' "$scratch/rank0"
grep -qx 'rank 1 of 2: \[3, 6, 9\]' "$scratch/rank1"
