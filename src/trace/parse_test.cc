// SPDX-License-Identifier: Apache-2.0
// parse_test.cc: events that are half, files that are cut, flipped or random; and the time line.

#include "trace/parse.h"

#include <gmock/gmock.h>

#include <cstring>
#include <random>
#include <vector>

#include "trace/recorder.h"
#include "trace/timeline.h"

namespace ciuic::trace {
namespace {

using testing::HasSubstr;

constexpr uint32_t kEvents = 64;
constexpr size_t kRing = kHeaderBytes + kGroups * kGroupBytes;

// A dump with `calls` calls of one group, all of which have ended.
std::string dump_of(uint32_t calls) {
  std::vector<Event> memory(bytes_for(kEvents) / sizeof(Event));
  auto recorder = Recorder::create(std::as_writable_bytes(std::span(memory)), {.pid = 1});
  EXPECT_TRUE(recorder.ok());
  GroupRecorder group = (*recorder)->join({.name = "default", .rank = 0, .size = 2});
  for (uint32_t i = 0; i < calls; ++i) {
    group.called({.operation = "all_gather", .sequence = i, .count = i + 1});
    group.ended(i, StatusCode::kOk);
  }
  return (*recorder)->snapshot();
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Event event_at(const std::string& dump, size_t place) {
  Event event;
  std::memcpy(&event, dump.data() + kRing + place * sizeof(Event), sizeof(event));
  return event;
}

void put_event(std::string* dump, size_t place, const Event& event) {
  std::memcpy(dump->data() + kRing + place * sizeof(Event), &event, sizeof(event));
}

// Whatever it says, it says it within bounds.
void expect_bounded(const Result<Trace>& trace) {
  if (!trace.ok()) {
    EXPECT_EQ(trace.status().code(), StatusCode::kInvalidArgument);
    return;
  }
  EXPECT_LE(trace->groups.size(), kGroups);
  EXPECT_LE(trace->operations.size(), kEvents + kGroups * kRecent);
  for (const Group& group : trace->groups) {
    EXPECT_LT(group.rank, group.size);
    EXPECT_LT(group.text.size(), 312u);
  }
}

TEST(Parse, PassesOverAnEventThatWasBeingWritten) {
  const std::string dump = dump_of(60);  // the ring is full of old events
  const size_t place = 20;
  const Event old = event_at(dump, place);
  Event next = old;
  next.stamp += kEvents;
  next.sequence += 1000;
  next.count = 12345;
  uint64_t words[kEventWords];
  std::memcpy(words, &next, sizeof(words));
  next.check = words[kEventWords - 1] = check_of(words);
  const size_t before = parse(bytes_of(dump))->operations.size();
  // In the order of the stores: stamp = 0, words 1 to 7, stamp.
  for (size_t stored = 1; stored <= kEventWords; ++stored) {
    uint64_t half[kEventWords];
    std::memcpy(half, &old, sizeof(half));
    half[0] = 0;
    for (size_t i = 1; i < stored; ++i) half[i] = words[i];
    std::string cut = dump;
    Event event;
    std::memcpy(&event, half, sizeof(event));
    put_event(&cut, place, event);
    const auto trace = parse(bytes_of(cut));
    ASSERT_TRUE(trace.ok());
    EXPECT_EQ(trace->process.torn_events, 1u) << stored;
    EXPECT_LE(trace->operations.size(), before);
    for (const Operation& operation : trace->operations) EXPECT_LT(operation.sequence, 60u);
  }
  std::string whole = dump;
  put_event(&whole, place, next);
  EXPECT_EQ(parse(bytes_of(whole))->process.torn_events, 0u);
}

// A writer that slept for a whole lap of the ring wakes and writes over a newer event.
TEST(Parse, PassesOverMixturesOfTwoEvents) {
  std::string dump = dump_of(60);
  const size_t place = 20;
  uint64_t a[kEventWords];
  uint64_t b[kEventWords];
  const Event old = event_at(dump, place);
  Event next = old;
  next.stamp += kEvents;
  next.ticks += 1000;
  next.sequence += kEvents / 2;
  next.count += kEvents / 2;
  next.bytes += 4;
  next.kind = next.kind == EventKind::kCalled ? EventKind::kEnded : EventKind::kCalled;
  next.fingerprint = 7;
  std::memcpy(a, &old, sizeof(a));
  std::memcpy(b, &next, sizeof(b));
  b[kEventWords - 1] = check_of(b);
  int mixtures = 0;
  for (unsigned mask = 1; mask < 255; ++mask) {
    uint64_t mixed[kEventWords];
    for (unsigned i = 0; i < kEventWords; ++i) mixed[i] = (mask >> i & 1u) != 0 ? b[i] : a[i];
    if (std::memcmp(mixed, a, sizeof(a)) == 0 || std::memcmp(mixed, b, sizeof(b)) == 0) continue;
    Event event;
    std::memcpy(&event, mixed, sizeof(event));
    put_event(&dump, place, event);
    EXPECT_EQ(parse(bytes_of(dump))->process.torn_events, 1u) << mask;
    ++mixtures;
  }
  EXPECT_EQ(mixtures, 254);
}

TEST(Parse, SaysWhyItIsNoDump) {
  const std::string good = dump_of(3);
  const auto why = [](const std::string& bytes) {
    return parse(bytes_of(bytes)).status().message();
  };
  EXPECT_THAT(why(""), HasSubstr("0 bytes"));
  EXPECT_THAT(why(std::string(bytes_for(kEvents), '\0')), HasSubstr("nothing has been written"));
  EXPECT_THAT(why(std::string(bytes_for(kEvents), 'x')), HasSubstr("begins otherwise"));
  EXPECT_THAT(why(good.substr(0, good.size() - 1)), HasSubstr("cut short"));
  std::string other = good;
  other[offsetof(Header, version)] = 9;
  EXPECT_THAT(why(other), HasSubstr("version 9"));
  other = good;
  std::swap(other[offsetof(Header, byte_order)], other[offsetof(Header, byte_order) + 3]);
  EXPECT_THAT(why(other), HasSubstr("byte order"));
  other = good;
  other[offsetof(Header, events)] = 65;
  EXPECT_THAT(why(other), HasSubstr("sizes"));
}

TEST(Parse, GarbageDoesNoHarm) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const std::string good = dump_of(100);
  int read = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    const int kind = round % 3;
    if (kind == 0) bytes.resize(random() % bytes.size());
    const size_t changes = kind == 1 ? 1 + random() % 8 : 200;
    for (size_t i = 0; i < changes && !bytes.empty(); ++i) {
      // Where there is most to be misread: the head, and sometimes anywhere.
      const size_t range = random() % 2 == 0 ? bytes.size() : 256;
      bytes[random() % std::min(range, bytes.size())] = static_cast<char>(random());
    }
    const Moment now{random(), static_cast<int64_t>(random()), static_cast<int64_t>(random())};
    const auto trace = parse(bytes_of(bytes), round % 2 == 0 ? &now : nullptr);
    expect_bounded(trace);
    read += trace.ok() ? 1 : 0;
  }
  EXPECT_GT(read, 100);  // some got past the header
}

// Events that are whole and say nonsense, as a liar would write them.
TEST(Parse, NonsenseInWholeEventsDoesNoHarm) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::string dump = dump_of(100);
  for (int round = 0; round < 300; ++round) {
    for (size_t place = 0; place < kEvents; ++place) {
      uint64_t words[kEventWords];
      for (uint64_t& word : words) word = random();
      words[0] = (random() % 1000) * kEvents + place + 1;
      words[4] = (words[4] & ~uint64_t{0xff}) | random() % 9;
      words[5] = random() % 3 << 32 | random() % 3;
      words[kEventWords - 1] = check_of(words);
      Event event;
      std::memcpy(&event, words, sizeof(event));
      put_event(&dump, place, event);
    }
    for (size_t i = 0; i < 64; ++i) {
      dump[kHeaderBytes + random() % (kGroups * kGroupBytes)] = static_cast<char>(random());
    }
    const auto trace = parse(bytes_of(dump));
    ASSERT_TRUE(trace.ok());
    expect_bounded(trace);
  }
}

TEST(Timeline, GoesInStraightLinesThroughTheMoments) {
  const Timeline timeline(ClockKind::kCounter,
                          {{3000, 1500, 2500}, {1000, 1000, 2000}, {2000, 1200, 2200}});
  EXPECT_EQ(timeline.monotonic_ns(1000), 1000);
  EXPECT_EQ(timeline.monotonic_ns(1500), 1100);
  EXPECT_EQ(timeline.monotonic_ns(2500), 1350);
  EXPECT_EQ(timeline.monotonic_ns(3000), 1500);
  EXPECT_EQ(timeline.monotonic_ns(5000), 2000);  // outside: by the pace of the whole
  EXPECT_EQ(timeline.monotonic_ns(200), 800);
  EXPECT_EQ(timeline.realtime_offset_ns(), 1000);
}

TEST(Timeline, TakesTicksForTimeWhereThereIsNothingElse) {
  EXPECT_EQ(Timeline(ClockKind::kCounter, {}).monotonic_ns(123), 123);
  EXPECT_EQ(Timeline(ClockKind::kMonotonic, {{5, 6, 7}}).monotonic_ns(123), 123);
  EXPECT_EQ(Timeline(ClockKind::kCounter, {{100, 5000, 0}}).monotonic_ns(103), 5003);
}

TEST(Timeline, NonsenseStaysWithinBounds) {
  const Timeline timeline(ClockKind::kCounter, {{0, INT64_MIN, INT64_MAX},
                                                {1, 5, 5},
                                                {2, 4, 4},
                                                {UINT64_MAX, INT64_MAX, INT64_MIN},
                                                {3, 2'000'000'000'000'000'000, 0}});
  for (const uint64_t ticks : {uint64_t{0}, uint64_t{1}, uint64_t{2}, UINT64_MAX / 2, UINT64_MAX}) {
    EXPECT_LT(std::abs(timeline.monotonic_ns(ticks)), int64_t{5} << 60);
  }
}

}  // namespace
}  // namespace ciuic::trace
