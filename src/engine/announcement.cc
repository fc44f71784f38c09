// SPDX-License-Identifier: Apache-2.0
// announcement.cc: a call in fields that a kAnnounce has no other use for.
//
//   lane           the operation's number; 255: none of the library's own
//   step           dtype, 256 times the op
//   chunk          root
//   message_bytes  elements

#include "engine/announcement.h"

#include <algorithm>
#include <optional>

#include "plan/registry.h"

namespace ciuic::engine {

static constexpr uint8_t kNoOperation = 255;

// As many as a line of shared memory has room for.
static constexpr int64_t kMostElements = (int64_t{1} << 56) - 1;

void describe(const CallRecord& call, wire::Header* header) {
  header->fingerprint = call.fingerprint;
  const std::optional<plan::Operation> operation = plan::operation_named(call.operation);
  header->lane = operation ? static_cast<uint8_t>(*operation) : kNoOperation;
  header->step =
      static_cast<uint16_t>(static_cast<int>(call.dtype) | static_cast<int>(call.op) << 8);
  header->chunk = static_cast<uint32_t>(call.root);
  header->message_bytes = static_cast<uint64_t>(std::min(call.count, kMostElements));
}

CallRecord described(const wire::Header& header) {
  CallRecord call;
  call.sequence = header.sequence;
  call.fingerprint = header.fingerprint;
  const int dtype = header.step & 0xff;
  const int op = header.step >> 8;
  if (header.lane >= plan::kOperations || dtype >= kDataTypes || op >= kReduceOps ||
      header.message_bytes > static_cast<uint64_t>(kMostElements)) {
    return call;
  }
  const auto operation = static_cast<plan::Operation>(header.lane);
  call.operation = plan::name_of(operation);
  call.dtype = static_cast<DataType>(dtype);
  call.op = static_cast<ReduceOp>(op);
  call.reduces = plan::reduces(operation);
  if (plan::has_root(operation)) call.root = static_cast<int>(header.chunk);
  call.count = static_cast<int64_t>(header.message_bytes);
  return call;
}

}  // namespace ciuic::engine
