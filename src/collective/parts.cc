// SPDX-License-Identifier: Apache-2.0
// parts.cc: cuts requests.

#include "collective/parts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "plan/registry.h"

namespace ciuic::collective {

// Elements of each block that one part does. 0: the operation is not cut.
static int64_t part_count(const engine::Request& whole, const plan::Layout& layout,
                          size_t scratch_bytes) {
  if (whole.plan == nullptr || whole.counts != nullptr) return 0;
  const auto most = static_cast<int64_t>(scratch_bytes / size_of(whole.dtype));
  // No plan that works in parts needs more than a block for each rank.
  if (whole.count <= most / layout.size()) return 0;
  const std::optional<plan::Operation> operation = plan::operation_named(whole.operation);
  if (!operation) return 0;
  const std::optional<plan::Algorithm> algorithm = plan::algorithm_named(whole.plan->algorithm);
  int64_t blocks = 0;
  if (algorithm && plan::works_in_parts(*operation, *algorithm)) {
    blocks = plan::scratch_blocks(*operation, *algorithm, layout);
  } else if (!algorithm && *operation == plan::Operation::kReduce) {
    blocks = 1;  // a caller's plan, which has room for the sum on ranks that have no output
  }
  if (blocks == 0) return 0;
  return std::max<int64_t>(1, most / blocks);
}

void add_in_parts(engine::Request whole, const plan::Layout& layout, size_t scratch_bytes,
                  std::vector<engine::Request>* requests) {
  const int64_t part = part_count(whole, layout, scratch_bytes);
  if (part == 0 || whole.count <= part) {
    requests->push_back(std::move(whole));
    return;
  }
  const int64_t count = whole.count;
  whole.stride = whole.whole_count = count;
  for (int64_t begin = 0; begin < count; begin += part) {
    engine::Request& request = requests->emplace_back(whole);
    const auto offset = begin * static_cast<int64_t>(size_of(whole.dtype));
    request.count = std::min(part, count - begin);
    if (request.input != nullptr) request.input += offset;
    if (request.output != nullptr) request.output += offset;
  }
}

}  // namespace ciuic::collective
