// SPDX-License-Identifier: Apache-2.0
// trace_fuzz.cc: a dump of a flight recorder, or the memory of a process that was killed at any
// moment, or a file that is neither.
//
// An input is laid over an honest image of a small ring: pairs of a place and bytes.

#include <algorithm>
#include <cstring>
#include <vector>

#include "input.h"
#include "trace/parse.h"

using namespace ciuic;

static constexpr uint32_t kEvents = trace::kLeastEvents;

static trace::Event event(uint64_t index, trace::EventKind kind, uint32_t sequence) {
  trace::Event event;
  event.stamp = index + 1;
  event.ticks = 1000 * index;
  event.count = 100;
  event.kind = kind;
  event.group = 1;
  event.sequence = sequence;
  return event;
}

static void seal(trace::Event* event) {
  uint64_t words[trace::kEventWords];
  std::memcpy(words, event, sizeof words);
  event->check = trace::check_of(words);
}

static std::vector<std::byte> honest_image() {
  std::vector<std::byte> bytes(trace::bytes_for(kEvents));
  trace::Header header{};
  header.magic = trace::kMagic;
  header.version = trace::kVersion;
  header.byte_order = trace::kByteOrder;
  header.header_bytes = trace::kHeaderBytes;
  header.groups = trace::kGroups;
  header.group_bytes = trace::kGroupBytes;
  header.events = kEvents;
  header.next = 20;
  std::memcpy(header.names[0], "all_reduce", 10);
  std::memcpy(bytes.data(), &header, sizeof header);
  trace::GroupSlot slot{};
  slot.number = slot.number_again = 1;
  slot.size = 2;
  std::memcpy(bytes.data() + trace::kHeaderBytes, &slot, sizeof slot);
  return bytes;
}

// Events that are whole, whatever they say.
static void put_event(fuzz::Input* input, std::vector<std::byte>* bytes) {
  trace::Event made = event(input->u8(), static_cast<trace::EventKind>(input->u8()), input->u8());
  const std::string_view over = input->bytes(input->u8() % sizeof made);
  const size_t at = input->u8() % (sizeof made - over.size());
  std::memcpy(reinterpret_cast<char*>(&made) + at, over.data(), over.size());
  seal(&made);
  const size_t place = trace::kHeaderBytes + trace::kGroups * trace::kGroupBytes +
                       (made.stamp - 1) % kEvents * sizeof made;
  std::memcpy(bytes->data() + place, &made, sizeof made);
}

static void read(std::span<const std::byte> bytes) {
  const Result<trace::Trace> trace = trace::parse(bytes);
  if (!trace.ok()) {
    fuzz::require(trace.status().code() == StatusCode::kInvalidArgument, "a typed error");
    return;
  }
  const size_t most = kEvents + trace::kGroups * trace::kRecent;
  fuzz::require(bytes.size() > trace::bytes_for(kEvents) || trace->operations.size() <= most,
                "no more operations than events");
  for (const trace::Operation& operation : trace->operations) {
    fuzz::require(operation.status <= StatusCode::kSystem, "a status that there is");
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  if (input.flag()) {
    const std::string_view rest = input.rest();
    read({reinterpret_cast<const std::byte*>(rest.data()), rest.size()});
    return 0;
  }
  static const std::vector<std::byte> honest = honest_image();
  std::vector<std::byte> bytes = honest;
  while (!input.empty()) {
    if (input.below(3) != 0) {
      put_event(&input, &bytes);
      continue;
    }
    const size_t at = input.u16() % bytes.size();
    const std::string_view over = input.text();
    std::memcpy(bytes.data() + at, over.data(), std::min(over.size(), bytes.size() - at));
  }
  read(bytes);
  return 0;
}
