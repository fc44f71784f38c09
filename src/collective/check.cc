// SPDX-License-Identifier: Apache-2.0
// check.cc: the checks.

#include "collective/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/dtype_text.h"

namespace ciuic::collective {

static Status invalid(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}

Status check_buffer(const char* operation, const char* name, const ConstBuffer& buffer) {
  if (buffer.count < 0) {
    return invalid(fmt::format("{}: {} has a negative count ({})", operation, name, buffer.count));
  }
  if (static_cast<size_t>(buffer.count) >
      PTRDIFF_MAX / std::max<size_t>(1, size_of(buffer.dtype))) {
    return invalid(fmt::format("{}: {} has {} {} elements, more than memory can hold", operation,
                               name, buffer.count, name_of(buffer.dtype)));
  }
  if (buffer.data == nullptr && buffer.count > 0) {
    return invalid(fmt::format("{}: {} is null, for {} elements", operation, name, buffer.count));
  }
  if (buffer.device.kind != DeviceKind::kCpu) {
    return {
        StatusCode::kUnsupported,
        fmt::format("{}: {} is on a GPU, and no backend of this build takes CUDA memory; copy it "
                    "to the CPU first",
                    operation, name)};
  }
  return {};
}

Status check_pair(const char* operation, const ConstBuffer& input, const ConstBuffer& output,
                  int64_t offset, bool allows_in_place) {
  if (input.dtype != output.dtype) {
    return invalid(fmt::format("{}: input is {} and output is {}; they must be alike", operation,
                               name_of(input.dtype), name_of(output.dtype)));
  }
  const auto in = reinterpret_cast<uintptr_t>(input.data);
  const auto out = reinterpret_cast<uintptr_t>(output.data);
  if (allows_in_place && in == out + static_cast<uintptr_t>(offset)) return {};
  if (input.count == 0 || output.count == 0) return {};
  if (in + input.bytes() <= out || out + output.bytes() <= in) return {};
  if (!allows_in_place) {
    return invalid(
        fmt::format("{}: input and output overlap; they must be memory apart", operation));
  }
  if (input.count == output.count) {
    return invalid(
        fmt::format("{}: input and output overlap in part; give the same memory for both "
                    "(in place), or memory apart",
                    operation));
  }
  return invalid(fmt::format(
      "{}: input and output overlap; in place the {} must be this rank's part of the {}, which "
      "begins {} bytes into it. Else give memory apart.",
      operation, input.count < output.count ? "input" : "output",
      input.count < output.count ? "output" : "input", offset < 0 ? -offset : offset));
}

Status check_rank(const char* operation, const char* what, int rank, int size) {
  if (rank >= 0 && rank < size) return {};
  return invalid(fmt::format("{}: {} {} is not a rank of this group (0 to {})", operation, what,
                             rank, size - 1));
}

Status check_counts(const char* operation, const char* name, const std::vector<int64_t>& counts,
                    int size, const ConstBuffer& buffer) {
  if (counts.size() != static_cast<size_t>(size)) {
    return invalid(
        fmt::format("{}: {}_counts has {} entries; there must be one for each of the {} "
                    "ranks",
                    operation, name, counts.size(), size));
  }
  int64_t sum = 0;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] < 0 || counts[rank] > buffer.count - sum) {
      return invalid(
          fmt::format("{}: {}_counts is {} for rank {}; all must be 0 or more, and "
                      "together the {} elements of {}",
                      operation, name, counts[rank], rank, buffer.count, name));
    }
    sum += counts[rank];
  }
  if (sum == buffer.count) return {};
  return invalid(fmt::format("{}: {}_counts are {} elements together, and {} has {}", operation,
                             name, sum, name, buffer.count));
}

Status check_op(const char* operation, DataType dtype, ReduceOp op) {
  if (is_reducible(dtype, op)) return {};
  return {StatusCode::kUnsupported,
          fmt::format("{}: {}. Nothing was sent.", operation, undefined_pair(dtype, op))};
}

}  // namespace ciuic::collective
