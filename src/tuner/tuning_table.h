// SPDX-License-Identifier: Apache-2.0
// tuning_table.h: the numbers that choices and predictions rest on. All ranks of a group have one
// and the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ciuic/status.h"

namespace ciuic::tuner {

// The defaults are shipped, so that bits repeat from run to run. Whole numbers only: they travel as
// text, and must be the same on every machine.
struct TuningTable {
  // All-reduce on one host: up to here in bytes that each rank reads, its own and all peers'
  // buffers, everyone reads everything; above, everyone adds up a part.
  int64_t one_shot_read_bytes = 32 * 1024;

  // Reduce on one host: up to here the root adds up all; above, everyone a part.
  int64_t direct_reduce_bytes = 64 * 1024;

  // Across hosts: what an algorithm may need of scratch if it cannot work in parts.
  int64_t scratch_bytes = 128 * 1024;

  int64_t shm_chunk_bytes = 64 * 1024;   // where any host has two ranks or more
  int64_t tcp_chunk_bytes = 256 * 1024;  // where none has

  // For predictions, and for choices across hosts. A megabyte is 10^6 bytes.
  int64_t step_ns = 60;
  int64_t shm_latency_ns = 250;
  int64_t shm_mb_per_s = 12'000;
  int64_t tcp_latency_ns = 18'000;
  int64_t tcp_message_ns = 2'000;  // of processor time, for each chunk at each end
  int64_t tcp_mb_per_s = 1'200;
  int64_t copy_mb_per_s = 14'000;
  int64_t reduce_mb_per_s = 16'000;  // of operands read

  bool operator==(const TuningTable&) const = default;

  // One line a number, "name value", after a line that says what it is.
  std::string serialize() const;

  // kInvalidArgument: not such a text, a name missing or unknown, a value that makes no sense.
  static Result<TuningTable> parse(std::string_view text);

  // Alike where all numbers are.
  uint32_t hash() const;
};

}  // namespace ciuic::tuner
