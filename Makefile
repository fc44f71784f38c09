# SPDX-License-Identifier: Apache-2.0
# The jobs. What each is for, and how long it takes, stands in CONTRIBUTING.md.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:

export JOBS ?= $(shell nproc)
bin := $(CURDIR)/.venv/bin

export CXX
# Objects are shared between build folders, and between copies of the tree.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
launcher = $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
configure = cmake -S . -G Ninja $(launcher) -Wno-dev
ctest = ctest --output-on-failure -j $(JOBS) --test-dir

# g++ 12's ThreadSanitizer wants less randomness of addresses than new kernels give.
plain_addresses = $(shell setarch -R true 2>/dev/null && echo setarch -R)

.PHONY: help
help:
	@echo 'make setup    .venv with ciuic in it; installs what is missing (Debian packages: sudo)'
	@echo 'make demo     trains a small DeepSeek model, over ciuic and over gloo'
	@echo 'make check    lint, C++ unit tests, quick Python tests'
	@echo 'make test     all tests, with sanitizers and packaging'
	@echo 'make fuzz     fuzzes every parser of bytes from outside, for SECONDS=10 each'
	@echo 'make sim      the simulator, SEEDS=2000 of them from FIRST=1 on'
	@echo 'make nightly  and the long ones'
	@echo 'make test-gpu what only a real NVIDIA GPU can show; tools/test_gpu.sh says what it needs'
	@echo 'make format   formats all code;  make lint: complains only'
	@echo 'make clean    removes what was built;  make distclean: and .venv'

.PHONY: setup system launchers
setup:
	@tools/setup.sh
	@echo "ciuic is ready: .venv/bin/ciuic"

launchers: setup
	@tools/setup.sh launchers

system:
	@tools/setup.sh system

.PHONY: demo
demo: setup
	@$(bin)/python examples/demo.py

# ---- style ----

.PHONY: format lint
format: setup
	tools/format.sh

lint: setup
	tools/format.sh --check
	$(bin)/mypy
	$(bin)/python tools/tidy.py
	$(bin)/python tools/check_docs.py

# ---- C++ ----

.PHONY: build unit asan tsan
build: system
	$(configure) -B build/release
	cmake --build build/release -j $(JOBS)
	cmake --build build/release -j $(JOBS) --target header_check

unit: build
	$(ctest) build/release

asan: system
	$(configure) -B build/asan -DCIUIC_SANITIZE=address,undefined -DCIUIC_BENCH=OFF -DCIUIC_EXAMPLES=OFF
	cmake --build build/asan -j $(JOBS)
	ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 \
	  UBSAN_OPTIONS=print_stacktrace=1 $(ctest) build/asan

tsan_tests := engine transport communicator backend cuda_fake nccl_fake nccl
tsan: system
	$(configure) -B build/tsan -DCIUIC_SANITIZE=thread -DCIUIC_BENCH=OFF -DCIUIC_EXAMPLES=OFF
	cmake --build build/tsan -j $(JOBS) --target $(tsan_tests:%=%_test)
	TSAN_OPTIONS=second_deadlock_stack=1 $(plain_addresses) \
	  $(ctest) build/tsan -R '^($(subst $(eval ) ,|,$(tsan_tests)))($$|\.)'

# The real engine and control plane under faults of all kinds, in a virtual world.
SEEDS ?= 2000
FIRST ?= 1
simulator = build/release/src/ciuic_sim --jobs $(JOBS)

.PHONY: sim
sim: build
	$(simulator) --ranks 2..64 --seeds $(SEEDS) --first $(FIRST)

# For SECONDS each; `make fuzz-corpus` makes the kept corpus anew of what it finds meanwhile.
SECONDS ?= 10
fuzz_flags := -DCMAKE_CXX_COMPILER=clang++-19 -DCIUIC_FUZZ=ON \
  -DCIUIC_TESTS=OFF -DCIUIC_BENCH=OFF -DCIUIC_EXAMPLES=OFF

.PHONY: fuzz fuzz-corpus fuzz-build
fuzz-build: system
	$(configure) -B build/fuzz $(fuzz_flags)
	cmake --build build/fuzz -j $(JOBS) --target fuzz_targets

fuzz: fuzz-build
	python3 fuzz/run.py --seconds $(SECONDS) --jobs $(JOBS)

fuzz-corpus: fuzz-build
	python3 fuzz/run.py --seconds $(SECONDS) --jobs $(JOBS) --collect

# ---- together ----

.PHONY: check test nightly
check: lint unit
	$(bin)/pytest -q -m 'not slow and not nightly'

# Tests that want a launcher fail where there is none.
test: export ALL_LAUNCHERS := 1
test: lint unit sim asan tsan fuzz launchers
	$(bin)/python tools/check_docs.py --run
	$(bin)/pytest -m 'not nightly'

nightly: test
	$(simulator) --seeds 100000 --first 100000
	$(simulator) --seeds 100 --ranks 32..200
	$(simulator) --seeds 1 --first 2 --ranks 1024 --calls 1 --only killed
	python3 fuzz/run.py --seconds 120 --jobs $(JOBS)
	$(bin)/pytest -m nightly

# Not by .venv, whose torch has no CUDA.
.PHONY: test-gpu
test-gpu:
	@tools/test_gpu.sh

.PHONY: clean distclean
clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

distclean: clean
	rm -rf .venv
