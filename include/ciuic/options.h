// SPDX-License-Identifier: Apache-2.0
// options.h: what a communicator and a single operation can be asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ciuic/store.h"

namespace ciuic {

inline constexpr int64_t kDefaultTimeoutMs = 300'000;
inline constexpr size_t kDefaultBufferSize = size_t{1} << 26;

struct CommunicatorOptions {
  // Both or neither. Neither: they come from the launcher's environment.
  int rank = -1;
  int size = -1;

  // Where the ranks meet. Null: CIUIC_STORE, else the launcher's own (PMI, PMIx). A name sets
  // groups apart that meet in one store at the same time; alike on all ranks.
  std::shared_ptr<Store> store;
  std::string group_name = "default";

  // Milliseconds for the join, and for each operation that names no time of its own. -1:
  // CIUIC_TIMEOUT_MS, else kDefaultTimeoutMs.
  int64_t timeout_ms = -1;

  // Bytes of staging memory at most, shared segments and socket buffers beside it; alike on all
  // ranks. 0: CIUIC_BUFFER_SIZE, else kDefaultBufferSize.
  size_t buffer_size = 0;
};

// An opaque stream of a device; none yet takes work.
struct Stream {
  void* handle = nullptr;
  int device_index = -1;
};

struct OperationOptions {
  int64_t timeout_ms = -1;  // from the call to the result; -1: the communicator's
  Stream stream = {};

  // The caller waits for the Work at once: nobody else is woken to make it progress.
  bool wait_follows = false;
};

}  // namespace ciuic
