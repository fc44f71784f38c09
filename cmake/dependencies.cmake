# SPDX-License-Identifier: Apache-2.0
# What is linked. Everything else (OpenSSL, libibverbs, hwloc, CUDA, NCCL, MPI) is opened at run time.

find_package(Threads REQUIRED)

# fmt is used header-only: Debian has no static library, and a wheel must not ask for the shared one.
find_package(fmt REQUIRED)

# Highway's dispatcher is a small shared library on Debian; a wheel carries it (install.cmake).
find_package(HWY REQUIRED)

if(CIUIC_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

if(CIUIC_BENCH)
  find_package(benchmark QUIET)
endif()
