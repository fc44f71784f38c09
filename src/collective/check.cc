// SPDX-License-Identifier: Apache-2.0
// check.cc: the checks, and the request that follows them.

#include "collective/check.h"

#include <fmt/format.h>

#include <cstdint>

namespace ciuic::collective {

static Status invalid(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}

Status check_buffer(const char* operation, const char* name, const ConstBuffer& buffer) {
  if (buffer.count < 0) {
    return invalid(fmt::format("{}: {} has a negative count ({})", operation, name, buffer.count));
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

Status check_pair(const char* operation, const ConstBuffer& input, const ConstBuffer& output) {
  if (input.dtype != output.dtype) {
    return invalid(fmt::format("{}: input is {} and output is {}; they must be alike", operation,
                               name_of(input.dtype), name_of(output.dtype)));
  }
  const auto in = reinterpret_cast<uintptr_t>(input.data);
  const auto out = reinterpret_cast<uintptr_t>(output.data);
  const bool apart = in + input.bytes() <= out || out + output.bytes() <= in;
  if (in != out && !apart) {
    return invalid(
        fmt::format("{}: input and output overlap in part; give the same memory for both "
                    "(in place), or memory apart",
                    operation));
  }
  return {};
}

Status check_root(const char* operation, int root, int size) {
  if (root >= 0 && root < size) return {};
  return invalid(
      fmt::format("{}: root {} is not a rank of this group (0 to {})", operation, root, size - 1));
}

Status check_op(const char* operation, DataType dtype, ReduceOp op) {
  if (is_reducible(dtype, op)) return {};
  std::string exist;
  for (int i = 0; i < kReduceOps; ++i) {
    if (!is_reducible(dtype, static_cast<ReduceOp>(i))) continue;
    exist += exist.empty() ? "" : ", ";
    exist += name_of(static_cast<ReduceOp>(i));
  }
  return {StatusCode::kUnsupported, fmt::format("{}: {} is not defined for {}; {} are", operation,
                                                name_of(op), name_of(dtype), exist)};
}

engine::Request request_for(Chooser& chooser, const Arguments& arguments, int64_t count) {
  const bool has_input = arguments.input.data != nullptr || arguments.output.data == nullptr;
  const tuner::Call call{arguments.operation,
                         has_input ? arguments.input.dtype : arguments.output.dtype, arguments.op,
                         count, arguments.root};
  Chosen chosen = chooser.choose(call);
  engine::Request request;
  request.operation = plan::name_of(arguments.operation);
  request.plan = std::move(chosen.plan);
  request.input = static_cast<const std::byte*>(arguments.input.data);
  request.output = static_cast<std::byte*>(arguments.output.data);
  request.count = count;
  request.dtype = call.dtype;
  request.op = arguments.op;
  request.reduces = plan::reduces(arguments.operation);
  request.root = plan::has_root(arguments.operation) ? arguments.root : -1;
  request.chunk_bytes = chosen.chunk_bytes;
  request.fingerprint = chosen.fingerprint;
  return request;
}

}  // namespace ciuic::collective
