# SPDX-License-Identifier: Apache-2.0
# What is linked. Everything else (OpenSSL, libibverbs, hwloc, CUDA, NCCL, MPI) is opened at run time.

find_package(Threads REQUIRED)

# Both are small shared libraries on Debian, which has no static ones; a wheel carries them
# (install.cmake). fmt's header-only mode makes each file that includes it compile 6 s longer.
find_package(fmt REQUIRED)
find_package(HWY REQUIRED)

if(CIUIC_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

if(CIUIC_BENCH)
  find_package(benchmark QUIET)
endif()
