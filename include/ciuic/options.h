// SPDX-License-Identifier: Apache-2.0
// options.h: what a communicator and a single operation can be asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ciuic/store.h"

namespace ciuic {

inline constexpr int64_t kDefaultTimeoutMs = 300'000;
inline constexpr size_t kDefaultBufferSize = size_t{1} << 26;

// The MPI of this process, for backend "mpi". Without anything: libmpi_abi.so.1, where the loader
// finds it (CIUIC_MPI_LIBRARY comes first), and MPI_COMM_WORLD.
struct MpiOptions {
  std::vector<std::string> libraries;  // paths to try, in this order

  // Of an MPI without the standard ABI of MPI 5: the values of its header by their names without
  // "MPI_" (docs/backends.md).
  std::map<std::string, int64_t> constants;

  // The handle of the communicator whose ranks make the group; 0: MPI_COMM_WORLD. It is duplicated,
  // for which all of its ranks must be there.
  uintptr_t communicator = 0;
};

struct CommunicatorOptions {
  // Both or neither. Neither: they come from the launcher's environment; with backend "mpi" from
  // MPI, which a size alone is compared with.
  int rank = -1;
  int size = -1;

  // Where the ranks meet. Null: CIUIC_STORE, else the launcher's own (PMI, PMIx). A name sets
  // groups apart that meet in one store at the same time; alike on all ranks.
  std::shared_ptr<Store> store;
  std::string group_name = "default";

  // Milliseconds for the join, and for each operation that names no time of its own. -1:
  // CIUIC_TIMEOUT_MS, else kDefaultTimeoutMs.
  int64_t timeout_ms = -1;

  // Who carries operations out: "native" is this library, "nccl" and "mpi" are others. "auto": nccl
  // where every rank has a GPU of its own and NCCL, and then CPU tensors go by native; else native.
  std::string backend = "auto";
  MpiOptions mpi;

  // The GPU of this rank, where its group may use one. -1: the calling thread's current one.
  int device = -1;

  // Paths of a libcudart and a libnccl.so.2, where neither the settings name one nor the process
  // has loaded one. "": what the loader finds.
  std::string cuda_library;
  std::string nccl_library;

  // Bytes of staging memory at most, shared segments and socket buffers beside it; alike on all
  // ranks. 0: CIUIC_BUFFER_SIZE, else kDefaultBufferSize.
  size_t buffer_size = 0;
};

// A stream of a device, as CUDA's runtime has them (cudaStream_t). Null: the legacy default stream.
struct Stream {
  void* handle = nullptr;
  int device_index = -1;
};

struct OperationOptions {
  int64_t timeout_ms = -1;  // from the call to the result; -1: the communicator's

  // Of tensors on a GPU: what the caller put into it before the call is done before they are read
  // or written.
  Stream stream = {};

  // The caller waits for the Work at once: nobody else is woken to make it progress.
  bool wait_follows = false;

  // A call of the library's own on the CPU's memory, which every backend takes.
  bool of_library = false;
};

}  // namespace ciuic
