// SPDX-License-Identifier: Apache-2.0
// call.h: one call of an operation as a value: for several calls at once, and for calls that are
// made again and again. Communicator has a method for each, which says what it does.
//
// clang-format off
//   operation         input                   output                  also
//   all_reduce        count                   count                   op
//   reduce            count                   count, the root's       op, root
//   broadcast         count, the root's       count                   root; one memory for both
//   all_gather        count                   size * count
//   all_gather_v      counts[rank]            all counts              output_counts
//   reduce_scatter    size * count            count                   op
//   reduce_scatter_v  all counts              counts[rank]            op, input_counts
//   all_to_all        size * count            size * count
//   all_to_all_v      all input_counts        all output_counts       input_counts, output_counts
//   gather            count                   size * count, the root's  root
//   gather_v          its own                 all counts, the root's  root; its output_counts
//   scatter           size * count, the root's  count                 root
//   scatter_v         all counts, the root's  its own                 root; its input_counts
//   barrier
//   send              count                                           peer, tag
//   recv                                      count                   peer, tag
// clang-format on
//
// What is marked as the root's is not looked at elsewhere. Counts are elements, one for each rank,
// and may be 0.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ciuic/buffer.h"
#include "ciuic/dtype.h"
#include "ciuic/export.h"

namespace ciuic {

// The values stand on the wire and in files; they are never renumbered.
enum class Operation : uint8_t {
  kAllReduce = 0,
  kReduce = 1,
  kBroadcast = 2,
  kAllGather = 3,
  kBarrier = 4,
  kReduceScatter = 5,
  kAllToAll = 6,
  kGather = 7,
  kScatter = 8,
  kSend = 9,  // these two are between two ranks, and have no plan
  kRecv = 10,
};

CIUIC_EXPORT const char* name_of(Operation operation);  // "all_reduce", "send", ...

inline constexpr int kAnySource = -1;  // peer of a recv: whoever sends
inline constexpr int kAnyTag = -1;     // tag of a recv
inline constexpr int kMaxTag = (1 << 30) - 1;

struct Call {
  Operation operation = Operation::kBarrier;
  ConstBuffer input = {};
  MutableBuffer output = {};
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  int peer = 0;
  int tag = 0;
  bool uneven = false;  // one of the operations that end in _v
  std::vector<int64_t> input_counts = {};
  std::vector<int64_t> output_counts = {};

  // Of a collective operation: by name ("ring", or one of Communicator::add_plan()). "": the
  // library's choice. Alike on all ranks.
  std::string algorithm = {};

  static Call all_reduce(ConstBuffer input, MutableBuffer output, ReduceOp op) {
    return {.operation = Operation::kAllReduce, .input = input, .output = output, .op = op};
  }
  static Call reduce(ConstBuffer input, MutableBuffer output, ReduceOp op, int root) {
    return {
        .operation = Operation::kReduce, .input = input, .output = output, .op = op, .root = root};
  }
  static Call broadcast(MutableBuffer buffer, int root) {
    return {.operation = Operation::kBroadcast, .input = buffer, .output = buffer, .root = root};
  }
  static Call all_gather(ConstBuffer input, MutableBuffer output) {
    return {.operation = Operation::kAllGather, .input = input, .output = output};
  }
  static Call all_gather_v(ConstBuffer input, MutableBuffer output, std::vector<int64_t> counts) {
    return {.operation = Operation::kAllGather,
            .input = input,
            .output = output,
            .uneven = true,
            .output_counts = std::move(counts)};
  }
  static Call reduce_scatter(ConstBuffer input, MutableBuffer output, ReduceOp op) {
    return {.operation = Operation::kReduceScatter, .input = input, .output = output, .op = op};
  }
  static Call reduce_scatter_v(ConstBuffer input, std::vector<int64_t> counts, MutableBuffer output,
                               ReduceOp op) {
    return {.operation = Operation::kReduceScatter,
            .input = input,
            .output = output,
            .op = op,
            .uneven = true,
            .input_counts = std::move(counts)};
  }
  static Call all_to_all(ConstBuffer input, MutableBuffer output) {
    return {.operation = Operation::kAllToAll, .input = input, .output = output};
  }
  static Call all_to_all_v(ConstBuffer input, std::vector<int64_t> input_counts,
                           MutableBuffer output, std::vector<int64_t> output_counts) {
    return {.operation = Operation::kAllToAll,
            .input = input,
            .output = output,
            .uneven = true,
            .input_counts = std::move(input_counts),
            .output_counts = std::move(output_counts)};
  }
  static Call gather(ConstBuffer input, MutableBuffer output, int root) {
    return {.operation = Operation::kGather, .input = input, .output = output, .root = root};
  }
  static Call gather_v(ConstBuffer input, MutableBuffer output, std::vector<int64_t> counts,
                       int root) {
    return {.operation = Operation::kGather,
            .input = input,
            .output = output,
            .root = root,
            .uneven = true,
            .output_counts = std::move(counts)};
  }
  static Call scatter(ConstBuffer input, MutableBuffer output, int root) {
    return {.operation = Operation::kScatter, .input = input, .output = output, .root = root};
  }
  static Call scatter_v(ConstBuffer input, std::vector<int64_t> counts, MutableBuffer output,
                        int root) {
    return {.operation = Operation::kScatter,
            .input = input,
            .output = output,
            .root = root,
            .uneven = true,
            .input_counts = std::move(counts)};
  }
  static Call barrier() { return {}; }
  static Call send(ConstBuffer input, int destination, int tag = 0) {
    return {.operation = Operation::kSend, .input = input, .peer = destination, .tag = tag};
  }
  static Call recv(MutableBuffer output, int source, int tag = 0) {
    return {.operation = Operation::kRecv, .output = output, .peer = source, .tag = tag};
  }
};

}  // namespace ciuic
