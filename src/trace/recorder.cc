// SPDX-License-Identifier: Apache-2.0
// recorder.cc: how events, names and groups are written, so that a kill between any two stores
// leaves nothing that a reader would believe.

#include "trace/recorder.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/hash.h"
#include "trace/dump.h"

namespace ciuic::trace {

static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);

// Release: no store is seen, or left behind by a kill, without those before it.
[[gnu::always_inline]] static inline void store(uint64_t* word, uint64_t value) {
  std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_release);
}

static uint64_t load(const uint64_t* word) {
  return std::atomic_ref<uint64_t>(*const_cast<uint64_t*>(word)).load(std::memory_order_acquire);
}

// One statement a word: a loop over an array would go by way of the stack.
[[gnu::always_inline]] static inline void store_event(Event* to, uint64_t stamp, uint64_t ticks,
                                                      const Words& words, uint64_t check) {
  uint64_t* at = reinterpret_cast<uint64_t*>(to);
  store(at, 0);
  store(at + 1, ticks);
  store(at + 2, words.count);
  store(at + 3, words.bytes);
  store(at + 4, words.what);
  store(at + 5, words.which);
  store(at + 6, words.rest);
  store(at + 7, check);
  store(at, stamp);
}

// `bytes` is a number of words, like the address.
static void store_bytes(void* to, const void* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const char*>(from) + at, sizeof(word));
    store(reinterpret_cast<uint64_t*>(static_cast<char*>(to) + at), word);
  }
}

template <size_t bytes>
static void copy_text(char (&to)[bytes], std::string_view from) {
  char text[bytes] = {};
  std::memcpy(text, from.data(), std::min(from.size(), bytes - 1));
  store_bytes(to, text, bytes);
}

uint64_t job_number(std::string_view job) { return job.empty() ? 0 : fnv1a_64(job); }

Recorder::Recorder(std::span<std::byte> memory)
    : memory_(memory.data()),
      bytes_(memory.size()),
      header_(reinterpret_cast<Header*>(memory.data())),
      slots_(reinterpret_cast<GroupSlot*>(memory.data() + kHeaderBytes)) {}

Result<std::shared_ptr<Recorder>> Recorder::create(std::span<std::byte> memory,
                                                   const RecorderOptions& options) {
  if (memory.size() < bytes_for(kLeastEvents) ||
      reinterpret_cast<uintptr_t>(memory.data()) % alignof(uint64_t) != 0) {
    return Status(StatusCode::kInvalidArgument,
                  "the flight recorder's memory has " + std::to_string(memory.size()) +
                      " bytes; it needs " + std::to_string(bytes_for(kLeastEvents)));
  }
  std::shared_ptr<Recorder> recorder(new Recorder(memory));
  uint32_t events = kLeastEvents;
  while (events < kMostEvents && bytes_for(events * 2) <= memory.size()) events *= 2;
  Header& header = *recorder->header_;
  store(&header.magic, 0);
  // `owner` stays as it is: it keeps other processes off (communicator/process_recorder.cc).
  constexpr size_t kOwner = offsetof(Header, owner);
  constexpr size_t kAfterOwner = kOwner + sizeof(header.owner);
  std::memset(memory.data() + sizeof(header.magic), 0, kOwner - sizeof(header.magic));
  std::memset(memory.data() + kAfterOwner, 0, memory.size() - kAfterOwner);
  header.version = kVersion;
  header.byte_order = kByteOrder;
  header.header_bytes = kHeaderBytes;
  header.groups = kGroups;
  header.group_bytes = kGroupBytes;
  header.events = events;
  header.clock = recorder->clock_ = clock_kind();
  header.pid = options.pid;
  header.start_ticks = options.start_ticks;
  header.launch_rank = options.launch_rank;
  header.launch_size = options.launch_size;
  store(&header.owner, static_cast<uint64_t>(options.pid));
  copy_text(header.boot_id, options.boot_id);
  copy_text(header.host, options.host);
  copy_text(header.library, options.library);
  recorder->ring_ = reinterpret_cast<Event*>(memory.data() + kHeaderBytes + kGroups * kGroupBytes);
  recorder->mask_ = events - 1;
  recorder->clock_mask_ = events / 8 - 1;
  store(&header.magic, kMagic);
  recorder->write_clock();
  return recorder;
}

// Writes an event to the ring, and to `copy` where that is not null; returns its ticks. The words
// are put together in registers: bytes stored one by one would have to be gathered from memory.
[[gnu::always_inline]] inline uint64_t Recorder::write(Words event, Event* copy) {
  const uint64_t ticks = read_ticks(clock_);
  write_at(ticks, event, copy);
  return ticks;
}

[[gnu::always_inline]] inline void Recorder::write_at(uint64_t ticks, Words event, Event* copy) {
  const uint64_t index =
      std::atomic_ref<uint64_t>(header_->next).fetch_add(1, std::memory_order_relaxed);
  const uint64_t check =
      check_of(index + 1, ticks, event.count, event.bytes, event.what, event.which, event.rest);
  store_event(ring_ + (index & mask_), index + 1, ticks, event, check);
  if (copy != nullptr) store_event(copy, index + 1, ticks, event, check);
  // Readers put times right by these events; some are always in the ring.
  if ((index & clock_mask_) == clock_mask_) [[unlikely]] {
    write_clock();
  }
}

void Recorder::write_clock() {
  const Moment moment = this_moment(clock_);
  write_at(moment.ticks,
           {.count = static_cast<uint64_t>(moment.monotonic_ns),
            .bytes = static_cast<uint64_t>(moment.realtime_ns),
            .what = static_cast<uint64_t>(EventKind::kClock)},
           nullptr);
}

uint8_t Recorder::name_index(std::string_view name) {
  std::lock_guard<std::mutex> lock(mutex_);
  name = name.substr(0, kNameBytes - 1);
  for (uint8_t i = 0; i < names_; ++i) {
    if (name == header_->names[i]) return i;
  }
  if (names_ == kNames) return 0xff;
  copy_text(header_->names[names_], name);
  return names_++;
}

// One that is free, or whose group was closed longest ago; null where all groups are alive.
GroupSlot* Recorder::take_slot() {
  GroupSlot* oldest = nullptr;
  uint64_t oldest_closed = UINT64_MAX;
  for (GroupSlot* slot = slots_; slot != slots_ + kGroups; ++slot) {
    if (slot->number == 0) return slot;
    const uint64_t closed = load(&slot->closed_ticks);
    if (closed != 0 && closed < oldest_closed) {
      oldest = slot;
      oldest_closed = closed;
    }
  }
  return oldest;
}

GroupRecorder Recorder::join(const GroupInfo& group) {
  GroupRecorder made;
  std::lock_guard<std::mutex> lock(mutex_);
  GroupSlot* slot = take_slot();
  made.number_ = ++groups_;
  if (slot == nullptr) {
    store(&header_->groups_lost, header_->groups_lost + 1);
    return made;
  }
  store(&slot->number, 0);
  store(&slot->number_again, 0);
  GroupSlot fresh{};
  fresh.id = group.id;
  fresh.epoch = group.epoch;
  fresh.job = group.job;
  fresh.rank = group.rank;
  fresh.size = group.size;
  fresh.joined_ticks = read_ticks(clock_);
  std::memcpy(fresh.name, group.name.data(), std::min(group.name.size(), sizeof(fresh.name) - 1));
  store_bytes(slot, &fresh, sizeof(fresh));
  store(&slot->number_again, made.number_);
  store(&slot->number, made.number_);
  made.recorder_ = shared_from_this();
  made.slot_ = slot;
  made.write_of_group(EventKind::kJoined, StatusCode::kOk);
  return made;
}

void Recorder::on_failure(std::function<void()> fn) {
  std::lock_guard<std::mutex> lock(mutex_);
  on_failure_ = std::move(fn);
}

void Recorder::tell_of_failure() {
  std::function<void()> fn;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    fn = on_failure_;
  }
  if (fn) fn();
}

std::string Recorder::snapshot() const {
  std::string copy(reinterpret_cast<const char*>(memory_), 0);
  copy.resize(bytes_);
  // Word by word: others write meanwhile. An event that is caught half does not agree with itself.
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes_; at += sizeof(uint64_t)) {
    const uint64_t word = load(reinterpret_cast<const uint64_t*>(memory_ + at));
    std::memcpy(copy.data() + at, &word, sizeof(word));
  }
  stamp_dump(&copy, DumpedBy::kItself, 0, std::nullopt);
  return copy;
}

uint8_t GroupRecorder::name_index(std::string_view name) {
  return records() ? recorder_->name_index(name) : 0xff;
}

void GroupRecorder::write_called(const Call& call) {
  Named* named = operations_.data();
  while (named->text != call.operation && named->text != nullptr && named != &operations_.back()) {
    ++named;
  }
  if (named->text != call.operation) [[unlikely]] {
    *named = {call.operation, recorder_->name_index(call.operation)};
  }
  const uint64_t flags = (call.starts_at_once ? kStartedAtOnce : 0) |
                         (call.reduces ? kReduces : 0) | (call.root >= 0 ? kHasRoot : 0) |
                         (call.is_message ? kMessage : 0) | (call.called_at != 0 ? kMonotonic : 0);
  const uint64_t ticks =
      call.called_at != 0 ? static_cast<uint64_t>(call.called_at) : read_ticks(recorder_->clock_);
  if (call.starts_at_once && !call.is_message) started_at_once_ = call.sequence;
  recorder_->write_at(
      ticks,
      {.count = static_cast<uint64_t>(call.count),
       .bytes = call.bytes,
       .what = static_cast<uint64_t>(EventKind::kCalled) | uint64_t{named->index} << 8 |
               uint64_t{call.algorithm} << 16 | static_cast<uint64_t>(call.dtype) << 24 |
               static_cast<uint64_t>(call.op) << 32 | flags << 48,
       .which = which(call.sequence),
       .rest = static_cast<uint32_t>(call.root) | uint64_t{call.fingerprint} << 32},
      call.is_message ? nullptr : &slot_->recent[call.sequence % kRecent]);
}

void GroupRecorder::write_started(uint32_t sequence) {
  recorder_->write({.what = static_cast<uint64_t>(EventKind::kStarted), .which = which(sequence)},
                   nullptr);
}

void GroupRecorder::write_ended(uint32_t sequence, StatusCode status) {
  const auto code = static_cast<uint64_t>(status);
  recorder_->write(
      {.what = static_cast<uint64_t>(EventKind::kEnded) | code << 40, .which = which(sequence)},
      nullptr);
  store(&slot_->ended[sequence % kRecent], uint64_t{sequence} << 32 | code << 8 | 1);
}

void GroupRecorder::write_message_ended(uint32_t sequence, StatusCode status) {
  recorder_->write({.what = static_cast<uint64_t>(EventKind::kEnded) |
                            static_cast<uint64_t>(status) << 40 | uint64_t{kMessage} << 48,
                    .which = which(sequence)},
                   nullptr);
}

uint64_t GroupRecorder::write_of_group(EventKind kind, StatusCode status) {
  return recorder_->write(
      {.what = static_cast<uint64_t>(kind) | static_cast<uint64_t>(status) << 40,
       .which = which(0)},
      nullptr);
}

void GroupRecorder::failed(const Status& status) {
  if (!records() || slot_->failed_ticks != 0) return;
  store(&slot_->status, static_cast<uint64_t>(status.code()));
  copy_text(slot_->text, status.message());
  store(&slot_->failed_ticks, write_of_group(EventKind::kFailed, status.code()));
  recorder_->tell_of_failure();
}

void GroupRecorder::closed() {
  if (!records()) return;
  store(&slot_->closed_ticks, write_of_group(EventKind::kClosed, StatusCode::kOk));
  slot_ = nullptr;
  recorder_.reset();
}

}  // namespace ciuic::trace
