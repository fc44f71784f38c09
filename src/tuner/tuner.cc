// SPDX-License-Identifier: Apache-2.0
// tuner.cc: which algorithm a call gets.

#include "tuner/tuner.h"

#include <algorithm>
#include <limits>

#include "tuner/estimate.h"

namespace ciuic::tuner {

using plan::Algorithm;
using plan::Layout;
using plan::Operation;

static int64_t bytes_of(const Call& call) {
  return call.count * static_cast<int64_t>(size_of(call.dtype));
}

// The call with the mean of uneven counts in place of them.
static Call evened(const Call& call, int size) {
  Call even = call;
  if (!call.uneven) return even;
  const bool known =
      call.operation == Operation::kAllGather || call.operation == Operation::kReduceScatter;
  even.count = known ? call.count / size : 0;
  return even;
}

static Algorithm choose_on_one_host(const Call& call, int size, const TuningTable& table) {
  const int64_t bytes = bytes_of(call);
  switch (call.operation) {
    case Operation::kAllReduce:
      return bytes <= table.one_shot_read_bytes / size ? Algorithm::kOneShot : Algorithm::kTwoShot;
    case Operation::kReduce:
      // With up to three ranks the parts save the root nothing.
      return bytes <= table.direct_reduce_bytes || size <= 3 ? Algorithm::kDirect
                                                             : Algorithm::kTwoShot;
    default: return Algorithm::kDirect;
  }
}

static Algorithm choose_by_estimate(const Call& call, const Layout& layout,
                                    const TuningTable& table) {
  Algorithm best = Algorithm::kDirect;
  int64_t best_ns = std::numeric_limits<int64_t>::max();
  for (const Algorithm algorithm : candidates(call, layout, table)) {
    const int64_t ns = estimated_ns(call, algorithm, layout, table);
    if (ns < best_ns) best = algorithm;
    best_ns = std::min(best_ns, ns);
  }
  return best;
}

size_t choose_chunk_bytes(const Call& call, Algorithm algorithm, const Layout& layout,
                          const TuningTable& table) {
  if (layout.hosts() == layout.size() && layout.size() > 1) {
    return static_cast<size_t>(table.tcp_chunk_bytes);
  }
  const int64_t most = table.shm_chunk_bytes;
  const bool adds_up_blocks =
      algorithm == Algorithm::kTwoShot ||
      (call.operation == Operation::kReduceScatter && algorithm == Algorithm::kDirect);
  if (!adds_up_blocks) return static_cast<size_t>(most);
  const bool is_block = call.operation == Operation::kReduceScatter;
  const int64_t block = is_block ? bytes_of(call) : bytes_of(call) / layout.size();
  if (block <= most) return static_cast<size_t>(most);
  // Equal chunks, two a block at least: the last one is not a small rest, and one is added up while
  // the next is on its way. Whole pages, which hold whole elements of every type.
  constexpr int64_t kPage = 4096;
  const int64_t chunks = std::max<int64_t>(2, (block + most - 1) / most);
  const int64_t chunk = (block + chunks - 1) / chunks;
  const int64_t least = std::min<int64_t>(4 * kPage, most);
  return static_cast<size_t>(std::clamp((chunk + kPage - 1) / kPage * kPage, least, most));
}

Choice choose(const Call& asked, const Layout& layout, const TuningTable& table) {
  const Call call = evened(asked, layout.size());
  Choice choice;
  choice.algorithm = layout.hosts() == 1 ? choose_on_one_host(call, layout.size(), table)
                                         : choose_by_estimate(call, layout, table);
  choice.chunk_bytes = choose_chunk_bytes(call, choice.algorithm, layout, table);
  return choice;
}

}  // namespace ciuic::tuner
