// SPDX-License-Identifier: Apache-2.0
// format.h: how the flight recorder's memory is laid out: a header, a slot for each group, a ring
// of events. The same bytes are a dump's file. Everything is in the byte order of the machine.
//
// An event is whole or not there. Its last word to be written, `stamp`, is one more than its index
// (how many events came before it), so that the place in the ring is known from it; `check` covers
// the other words. A writer that was killed between two words, and one that was overtaken by a
// whole lap of the ring, leave an event whose words do not agree; readers pass over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ciuic::trace {

inline constexpr uint64_t kMagic = 0x31636172'74696963u;  // "ciitrac1" on little-endian machines
inline constexpr uint32_t kVersion = 1;
inline constexpr uint32_t kByteOrder = 0x01020304;

inline constexpr uint32_t kGroups = 64;     // slots
inline constexpr uint32_t kRecent = 8;      // calls a slot keeps beside the ring
inline constexpr uint32_t kNames = 48;      // of operations and algorithms
inline constexpr uint32_t kNameBytes = 32;  // with the zero at the end
inline constexpr int32_t kMostRanks = 1 << 20;
inline constexpr uint32_t kLeastEvents = 64;
inline constexpr uint32_t kMostEvents = 1u << 22;

enum class EventKind : uint8_t {
  kNone = 0,
  kClock = 1,    // count: CLOCK_MONOTONIC, bytes: CLOCK_REALTIME, both nanoseconds, at `ticks`
  kJoined = 2,   // a group
  kCalled = 3,   // an operation; kStartedAtOnce says that it did not have to wait its turn
  kStarted = 4,  // an operation that had to wait its turn
  kEnded = 5,    // an operation, with its status
  kFailed = 6,   // a group; the text stands in its slot
  kClosed = 7,   // a group
};

enum EventFlags : uint16_t {
  kStartedAtOnce = 1,
  kReduces = 2,
  kHasRoot = 4,
  // Between two ranks: `sequence` counts the rank's sends and receives, `root` is the other rank
  // (without kHasRoot: any), `fingerprint` the tag (UINT32_MAX: any).
  kMessage = 16,
  kMonotonic = 8,  // `ticks` are nanoseconds of CLOCK_MONOTONIC, whatever Header::clock says
};

struct Event {
  uint64_t stamp = 0;  // index + 1; 0: none, or being written
  uint64_t ticks = 0;  // of the clock that Header::clock names
  uint64_t count = 0;  // elements
  uint64_t bytes = 0;  // of this rank's buffer
  EventKind kind = EventKind::kNone;
  uint8_t operation = 0;  // index into Header::names; 0xff: none
  uint8_t algorithm = 0;  // the same
  uint8_t dtype = 0;      // ciuic::DataType
  uint8_t op = 0;         // ciuic::ReduceOp
  uint8_t status = 0;     // ciuic::StatusCode
  uint16_t flags = 0;
  uint32_t group = 0;     // number of the group in this process: 1, 2, ...
  uint32_t sequence = 0;  // of the operation in its group
  int32_t root = 0;
  uint32_t fingerprint = 0;
  uint64_t check = 0;
};
inline constexpr size_t kEventWords = 8;
static_assert(sizeof(Event) == kEventWords * sizeof(uint64_t));
static_assert(std::is_trivially_copyable_v<Event>);

enum class ClockKind : uint32_t {
  kMonotonic = 0,  // ticks are CLOCK_MONOTONIC's nanoseconds
  kCounter = 1,    // the processor's counter, which never changes its pace; see EventKind::kClock
};

// Who copied the memory into a file, and what was known of the process then. All zero in memory.
struct Dump {
  uint64_t ticks = 0;
  int64_t monotonic_ns = 0;
  int64_t realtime_ns = 0;
  uint8_t by = 0;         // DumpedBy
  uint8_t state = 0;      // the process's letter in /proc: 'R', 'S', 'T', ...; 0: not looked at
  uint8_t has_ended = 0;  // exit_code is valid
  uint8_t unused = 0;
  int32_t exit_code = 0;  // 128 + n: by signal n
};

enum class DumpedBy : uint8_t { kNobody = 0, kItself = 1, kLauncher = 2, kReader = 3 };

struct Header {
  uint64_t magic;
  uint32_t version;
  uint32_t byte_order;
  uint32_t header_bytes;  // where the slots begin
  uint32_t groups;        // slots
  uint32_t group_bytes;   // of a slot
  uint32_t events;        // of the ring; a power of two
  ClockKind clock;
  int32_t pid;
  uint64_t start_ticks;  // of the process, since boot: with pid and boot_id its name for good
  int32_t launch_rank;   // as the launcher says; -1: it says nothing
  int32_t launch_size;
  char boot_id[40];
  char host[72];
  char library[24];      // version
  uint64_t groups_lost;  // for which there was no slot
  uint64_t owner;        // pid of who writes; 0: a launcher made the memory, nobody writes yet
  Dump dump;
  uint64_t reserved[2];
  uint64_t next;  // events begun, on a line of its own
  uint64_t padding[7];
  char names[kNames][kNameBytes];
};
static_assert(offsetof(Header, next) % 64 == 0 && std::is_trivially_copyable_v<Header>);
inline constexpr size_t kHeaderBytes = 2048;
static_assert(sizeof(Header) <= kHeaderBytes);

// What a group keeps apart from the ring, so that other groups' events do not push it out.
struct GroupSlot {
  uint64_t number;  // as in events; 0: free, or being written. Written last
  uint32_t id;      // the same on all ranks of the group, with epoch and job
  uint32_t epoch;
  uint64_t job;
  int32_t rank;
  int32_t size;
  uint64_t joined_ticks;
  uint64_t failed_ticks;  // 0: not; written after status and text
  uint64_t closed_ticks;
  uint64_t status;  // ciuic::StatusCode
  char name[64];
  // By sequence modulo kRecent: copies of the last calls, and for each the end of its operation:
  // sequence << 32 | status << 8 | 1.
  Event recent[kRecent];
  uint64_t ended[kRecent];
  char text[312];         // why it failed
  uint64_t number_again;  // as `number`, at the other end of the slot
};
inline constexpr size_t kGroupBytes = 1024;
static_assert(sizeof(GroupSlot) == kGroupBytes && std::is_trivially_copyable_v<GroupSlot>);

// Bytes of the memory for a ring of `events`.
constexpr size_t bytes_for(uint32_t events) {
  return kHeaderBytes + kGroups * kGroupBytes + size_t{events} * sizeof(Event);
}

// The least ring of at least `wanted` events that there can be.
constexpr uint32_t events_for(uint64_t wanted) {
  uint32_t events = kLeastEvents;
  while (events < wanted && events < kMostEvents) events *= 2;
  return events;
}

// A multilinear hash of all words but `check`: odd random multipliers, so that words of two events
// that got mixed do not agree but once in 2^63.
constexpr uint64_t check_of(uint64_t stamp, uint64_t ticks, uint64_t count, uint64_t bytes,
                            uint64_t what, uint64_t which, uint64_t rest) {
  return stamp * 0x9e3779b97f4a7c15u + ticks * 0xbf58476d1ce4e5b9u + count * 0x94d049bb133111ebu +
         bytes * 0xd6e8feb86659fd93u + what * 0xc2b2ae3d27d4eb4fu + which * 0xa0761d6478bd642fu +
         rest * 0xe7037ed1a0b428dbu + 0x8ebc6af09c88c6e3u;
}

constexpr uint64_t check_of(const uint64_t (&words)[kEventWords]) {
  return check_of(words[0], words[1], words[2], words[3], words[4], words[5], words[6]);
}

}  // namespace ciuic::trace
