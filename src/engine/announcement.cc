// SPDX-License-Identifier: Apache-2.0
// announcement.cc: a call in fields that a kAnnounce has no other use for.
//
//   lane           the operation's number, and 64 if it is uneven; 255: none of the library's own
//   step           dtype, 256 times the op
//   chunk          root
//   message_bytes  elements

#include "engine/announcement.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "plan/registry.h"

namespace ciuic::engine {

static constexpr uint8_t kNoOperation = 255;
static constexpr uint8_t kUneven = 64;

// "all_gather_v" is the uneven form of "all_gather".
static bool is_uneven(std::string_view name) { return name.ends_with("_v"); }

std::optional<plan::Operation> operation_called(std::string_view name) {
  return plan::operation_named(is_uneven(name) ? name.substr(0, name.size() - 2) : name);
}

// As many as a line of shared memory has room for.
static constexpr int64_t kMostElements = (int64_t{1} << 56) - 1;

void describe(const CallRecord& call, wire::Header* header) {
  header->fingerprint = call.fingerprint;
  const std::optional<plan::Operation> operation = operation_called(call.operation);
  header->lane = kNoOperation;
  if (operation) header->lane = static_cast<uint8_t>(*operation);
  if (operation && is_uneven(call.operation)) header->lane |= kUneven;
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
  const int number = header.lane & ~kUneven;
  if (number >= plan::kOperations || dtype >= kDataTypes || op >= kReduceOps ||
      header.message_bytes > static_cast<uint64_t>(kMostElements)) {
    return call;
  }
  const auto operation = static_cast<plan::Operation>(number);
  const bool uneven = (header.lane & kUneven) != 0;
  call.operation = uneven ? plan::uneven_name_of(operation) : plan::name_of(operation);
  if (call.operation == nullptr) return call;
  call.dtype = static_cast<DataType>(dtype);
  call.op = static_cast<ReduceOp>(op);
  call.reduces = plan::reduces(operation);
  if (plan::has_root(operation)) call.root = static_cast<int>(header.chunk);
  call.count = static_cast<int64_t>(header.message_bytes);
  return call;
}

}  // namespace ciuic::engine
