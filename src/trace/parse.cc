// SPDX-License-Identifier: Apache-2.0
// parse.cc: header, slots and ring are copied out and looked at; nothing is believed unchecked.

#include "trace/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "base/printable.h"
#include "ciuic/dtype.h"
#include "trace/timeline.h"

namespace ciuic::trace {

namespace {

// What is read of the bytes, before it is put together.
struct Reading {
  Header header{};
  std::vector<GroupSlot> slots;
  std::vector<Event> events;  // whole, in order
  uint64_t torn = 0;
};

}  // namespace

template <typename T>
static T read_at(std::span<const std::byte> bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

template <size_t bytes>
static std::string text_of(const char (&text)[bytes]) {
  return printable({text, strnlen(text, bytes)}, bytes);
}

static Status not_ours(const std::string& why) {
  return {StatusCode::kInvalidArgument, "this is no flight recorder's memory or dump: " + why};
}

static Status check_header(const Header& header, size_t bytes) {
  if (header.magic == 0) {
    return not_ours("nothing has been written to it");
  }
  if (header.magic != kMagic) return not_ours("it begins otherwise");
  if (header.byte_order != kByteOrder) return not_ours("it is of a machine of other byte order");
  if (header.version != kVersion) {
    return not_ours(
        fmt::format("it has version {}, this library reads {}", header.version, kVersion));
  }
  const bool sizes = header.header_bytes == kHeaderBytes && header.groups == kGroups &&
                     header.group_bytes == kGroupBytes && header.events >= kLeastEvents &&
                     header.events <= kMostEvents && (header.events & (header.events - 1)) == 0;
  if (!sizes) return not_ours("its sizes do not fit each other");
  if (bytes < bytes_for(header.events)) {
    return not_ours(fmt::format("it has {} bytes of {}; the file was cut short", bytes,
                                bytes_for(header.events)));
  }
  return {};
}

static bool is_whole(const Event& event) {
  uint64_t words[kEventWords];
  std::memcpy(words, &event, sizeof(words));
  return event.stamp != 0 && event.check == check_of(words);
}

// The events of the ring, and those calls that only their group's slot still has.
static void read_events(std::span<const std::byte> bytes, Reading* reading) {
  const uint32_t ring = reading->header.events;
  const size_t begin = kHeaderBytes + kGroups * kGroupBytes;
  for (uint32_t place = 0; place < ring; ++place) {
    const Event event = read_at<Event>(bytes, begin + place * sizeof(Event));
    if (is_whole(event) && (event.stamp - 1) % ring == place) {
      reading->events.push_back(event);
    } else if (place < reading->header.next) {
      ++reading->torn;
    }
  }
  for (const GroupSlot& slot : reading->slots) {
    for (const Event& event : slot.recent) {
      if (is_whole(event) && event.kind == EventKind::kCalled && event.group == slot.number) {
        reading->events.push_back(event);
      }
    }
  }
  const auto before = [](const Event& a, const Event& b) { return a.stamp < b.stamp; };
  const auto same = [](const Event& a, const Event& b) { return a.stamp == b.stamp; };
  auto& events = reading->events;
  std::sort(events.begin(), events.end(), before);
  events.erase(std::unique(events.begin(), events.end(), same), events.end());
}

static Result<Reading> read(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes) {
    return not_ours(fmt::format("it has only {} bytes", bytes.size()));
  }
  Reading reading;
  reading.header = read_at<Header>(bytes, 0);
  CIUIC_RETURN_IF_ERROR(check_header(reading.header, bytes.size()));
  for (uint32_t i = 0; i < kGroups; ++i) {
    const auto slot = read_at<GroupSlot>(bytes, kHeaderBytes + i * kGroupBytes);
    const bool is_used = slot.number != 0 && slot.number == slot.number_again &&
                         slot.number <= UINT32_MAX && slot.size > 0 && slot.rank >= 0 &&
                         slot.rank < slot.size && slot.size <= kMostRanks;
    if (is_used) reading.slots.push_back(slot);
  }
  read_events(bytes, &reading);
  return reading;
}

static Timeline timeline_of(const Reading& reading, const Moment* now) {
  std::vector<Moment> moments;
  for (const Event& event : reading.events) {
    if (event.kind != EventKind::kClock) continue;
    moments.push_back(
        {event.ticks, static_cast<int64_t>(event.count), static_cast<int64_t>(event.bytes)});
  }
  const Dump& dump = reading.header.dump;
  if (dump.by != 0) {
    moments.push_back({dump.ticks, dump.monotonic_ns, dump.realtime_ns});
  } else if (now != nullptr) {
    moments.push_back(*now);
  }
  return {reading.header.clock, std::move(moments)};
}

static constexpr uint64_t kLatest = uint64_t{1} << 61;  // 73 years after the boot

static StatusCode status_code(uint64_t number) {
  return static_cast<StatusCode>(std::min<uint64_t>(number, static_cast<int>(StatusCode::kSystem)));
}

static Process process_of(const Reading& reading, const Timeline& timeline) {
  const Header& header = reading.header;
  Process process;
  process.pid = header.pid;
  process.start_ticks = header.start_ticks;
  process.launch_rank = header.launch_rank;
  process.launch_size = header.launch_size;
  process.boot_id = text_of(header.boot_id);
  process.host = text_of(header.host);
  process.library = text_of(header.library);
  process.ring_events = header.events;
  process.written_events = header.next;
  process.torn_events = reading.torn;
  process.groups_lost = header.groups_lost;
  process.realtime_offset_ns = timeline.realtime_offset_ns();
  if (header.dump.by != 0) process.dumped_ns = header.dump.monotonic_ns;
  process.dump = header.dump;
  return process;
}

static Group group_of(const GroupSlot& slot, const Timeline& timeline) {
  Group group;
  group.number = static_cast<uint32_t>(slot.number);
  group.id = slot.id;
  group.epoch = slot.epoch;
  group.job = slot.job;
  group.rank = slot.rank;
  group.size = slot.size;
  group.name = text_of(slot.name);
  group.joined_ns = timeline.monotonic_ns(slot.joined_ticks);
  if (slot.closed_ticks != 0) group.closed_ns = timeline.monotonic_ns(slot.closed_ticks);
  if (slot.failed_ticks != 0) {
    group.failed_ns = timeline.monotonic_ns(slot.failed_ticks);
    group.status = status_code(slot.status);
    group.text = text_of(slot.text);
  }
  return group;
}

static std::string name_at(const Header& header, uint8_t index) {
  return index < kNames ? text_of(header.names[index]) : std::string();
}

static void take_call(const Reading& reading, const Event& event, int64_t at,
                      Operation* operation) {
  operation->is_known = true;
  operation->name = name_at(reading.header, event.operation);
  operation->algorithm = name_at(reading.header, event.algorithm);
  operation->dtype = event.dtype < kDataTypes ? name_of(static_cast<DataType>(event.dtype))
                                              : fmt::format("dtype {}", event.dtype);
  if ((event.flags & kReduces) != 0) {
    operation->op = event.op < kReduceOps ? name_of(static_cast<ReduceOp>(event.op))
                                          : fmt::format("op {}", event.op);
  }
  if ((event.flags & kHasRoot) != 0) operation->root = event.root;
  operation->count = static_cast<int64_t>(event.count);
  operation->bytes = event.bytes;
  operation->fingerprint = event.fingerprint;
  operation->called_ns = at;
  if ((event.flags & kStartedAtOnce) != 0) operation->started_ns = at;
}

static std::vector<Operation> operations_of(const Reading& reading, const Timeline& timeline) {
  std::vector<Operation> operations;
  std::map<std::tuple<bool, uint32_t, uint32_t>, size_t> places;
  for (const Event& event : reading.events) {
    const bool is_of_operation = event.kind == EventKind::kCalled ||
                                 event.kind == EventKind::kStarted ||
                                 event.kind == EventKind::kEnded;
    if (!is_of_operation) continue;
    const bool is_message = (event.flags & kMessage) != 0;
    const auto [found, is_new] =
        places.try_emplace({is_message, event.group, event.sequence}, operations.size());
    if (is_new) {
      operations.emplace_back();
      operations.back().group = event.group;
      operations.back().sequence = event.sequence;
      operations.back().is_message = is_message;
    }
    Operation& operation = operations[found->second];
    const bool is_monotonic = (event.flags & kMonotonic) != 0;
    const int64_t at = is_monotonic ? static_cast<int64_t>(std::min(event.ticks, kLatest))
                                    : timeline.monotonic_ns(event.ticks);
    if (event.kind == EventKind::kCalled) {
      take_call(reading, event, at, &operation);
    } else if (event.kind == EventKind::kStarted) {
      operation.started_ns = at;
    } else {
      operation.has_ended = true;
      operation.ended_ns = at;
      operation.status = status_code(event.status);
    }
  }
  // The ends that other events have pushed out of the ring.
  for (const GroupSlot& slot : reading.slots) {
    for (const uint64_t ended : slot.ended) {
      const auto found = places.find(
          {false, static_cast<uint32_t>(slot.number), static_cast<uint32_t>(ended >> 32)});
      if ((ended & 1) == 0 || found == places.end()) continue;
      Operation& operation = operations[found->second];
      if (operation.has_ended) continue;
      operation.has_ended = true;
      operation.status = status_code((ended >> 8) & 0xff);
    }
  }
  return operations;
}

Result<Trace> parse(std::span<const std::byte> bytes, const Moment* now) {
  Result<Reading> reading = read(bytes);
  if (!reading.ok()) return reading.status();
  const Timeline timeline = timeline_of(*reading, now);
  Trace trace;
  trace.process = process_of(*reading, timeline);
  for (const GroupSlot& slot : reading->slots) trace.groups.push_back(group_of(slot, timeline));
  std::sort(trace.groups.begin(), trace.groups.end(),
            [](const Group& a, const Group& b) { return a.number < b.number; });
  trace.operations = operations_of(*reading, timeline);
  return trace;
}

}  // namespace ciuic::trace
