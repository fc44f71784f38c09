// SPDX-License-Identifier: Apache-2.0
// operations.h: operations as work on streams, alone or in groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "nccl/arithmetic.h"
#include "nccl/comm.h"

namespace ciuic::fake_nccl {

enum class Kind : uint32_t {
  kAllReduce = 1,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kSend,
  kReceive,
};

struct Operation {
  Kind kind = Kind::kAllReduce;
  const void* input = nullptr;  // as it was given
  void* output = nullptr;
  size_t count = 0;  // elements, as the caller counts
  int type = 0;
  int op = kSum;
  int peer = 0;  // or the root
  void* stream = nullptr;

  // Found when it was checked.
  std::byte* from = nullptr;
  std::byte* to = nullptr;
  Reduction reduction = {};
};

// Checks an operation; puts it on its stream, or into the thread's group.
int submit(const char* name, const void* comm, Operation operation);

// Of this thread. group_end() puts the group on its streams, or returns the first error that a call
// of the group had, and does nothing else.
int group_start();
int group_end();
bool is_in_group();

}  // namespace ciuic::fake_nccl
