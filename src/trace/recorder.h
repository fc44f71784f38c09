// SPDX-License-Identifier: Apache-2.0
// recorder.h: the flight recorder of one process: what its groups did last, in memory that another
// process can read at any instant, also after this one was killed.
//
// The recorder writes to memory that it is given (format.h); whoever made it, and holds it by a
// descriptor, decides who can read it. Writing an event is a few stores, no lock and no call of the
// system. Any thread may write; the events of one group come from one thread at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "ciuic/dtype.h"
#include "ciuic/status.h"
#include "trace/format.h"
#include "trace/ticks.h"

namespace ciuic::trace {

// A job's name as a number.
uint64_t job_number(std::string_view job);

// What a group is to one of its ranks.
struct GroupInfo {
  std::string name = {};
  uint64_t job = 0;  // sets groups of different jobs apart
  uint32_t id = 0;
  uint32_t epoch = 0;
  int rank = 0;
  int size = 1;
};

// One call of an operation.
struct Call {
  const char* operation = "";  // "all_reduce"; static
  uint8_t algorithm = 0xff;    // GroupRecorder::name_index(); 0xff: not known
  bool starts_at_once = false;
  bool reduces = false;  // `op` means something
  // Between two ranks: `root` is the other one, -1: any, `fingerprint` the tag, UINT32_MAX: any;
  // `sequence` counts the rank's messages alone.
  bool is_message = false;
  DataType dtype = DataType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  uint32_t sequence = 0;
  uint32_t fingerprint = 0;
  int root = -1;  // -1: it has none
  int64_t count = 0;
  uint64_t bytes = 0;
  TimeNs called_at = 0;  // 0: now. A caller that knows the time saves us a look at the clock
};

class Recorder;

// An event's words but stamp, ticks and check.
struct Words {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t what = 0;   // kind, operation, algorithm, dtype, op, status, flags
  uint64_t which = 0;  // group, sequence
  uint64_t rest = 0;   // root, fingerprint
};

// What writes the events of one group. One that is default-made, or of a recorder that has no room
// for the group, writes nothing.
class GroupRecorder {
 public:
  GroupRecorder() = default;

  bool records() const { return slot_ != nullptr; }

  // An index into the table of names, for Call::algorithm. Looks through the table.
  uint8_t name_index(std::string_view name);

  void called(const Call& call) {
    if (records()) write_called(call);
  }
  void started(uint32_t sequence) {  // nothing where the call said that it starts at once
    if (records() && sequence != started_at_once_) write_started(sequence);
  }
  void ended(uint32_t sequence, StatusCode status) {
    if (records()) write_ended(sequence, status);
  }
  void message_ended(uint32_t sequence, StatusCode status) {
    if (records()) write_message_ended(sequence, status);
  }
  void failed(const Status& status);  // the first one stays
  void closed();                      // the last

 private:
  friend class Recorder;

  void write_called(const Call& call);
  void write_started(uint32_t sequence);
  void write_ended(uint32_t sequence, StatusCode status);
  void write_message_ended(uint32_t sequence, StatusCode status);
  uint64_t write_of_group(EventKind kind, StatusCode status);
  uint64_t which(uint32_t sequence) const { return uint64_t{sequence} << 32 | number_; }

  std::shared_ptr<Recorder> recorder_;
  GroupSlot* slot_ = nullptr;
  uint32_t number_ = 0;
  uint64_t started_at_once_ = UINT64_MAX;

  struct Named {
    const char* text = nullptr;
    uint8_t index = 0;
  };
  std::array<Named, 8> operations_{};  // by address
};

struct RecorderOptions {
  int pid = 0;
  uint64_t start_ticks = 0;
  int launch_rank = -1;
  int launch_size = -1;
  std::string boot_id = {};
  std::string host = {};
  std::string library = {};
};

class Recorder : public std::enable_shared_from_this<Recorder> {
 public:
  // Takes the memory over, aligned to 64 bytes: of bytes_for() some number of events, rounded by
  // events_for(); what is left over stays unused. It outlives the recorder. kInvalidArgument: too
  // small.
  static Result<std::shared_ptr<Recorder>> create(std::span<std::byte> memory,
                                                  const RecorderOptions& options);

  // Never fails: without a slot the group is only counted.
  GroupRecorder join(const GroupInfo& group);

  // Called by whichever thread calls failed(), after the event was written; must not block for
  // long. Replaces the one before.
  void on_failure(std::function<void()> fn);

  // What the memory holds now, as a dump.
  std::string snapshot() const;

 private:
  friend class GroupRecorder;

  explicit Recorder(std::span<std::byte> memory);
  uint64_t write(Words event, Event* copy);
  void write_at(uint64_t ticks, Words event, Event* copy);
  void write_clock();
  uint8_t name_index(std::string_view name);
  GroupSlot* take_slot();
  void tell_of_failure();

  std::byte* const memory_;
  const size_t bytes_;
  Header* const header_;
  GroupSlot* const slots_;
  Event* ring_ = nullptr;
  uint64_t mask_ = 0;
  uint64_t clock_mask_ = 0;
  ClockKind clock_ = ClockKind::kMonotonic;

  std::mutex mutex_;  // guards the slots' heads, the names, and what follows
  std::function<void()> on_failure_;
  uint32_t groups_ = 0;
  uint8_t names_ = 0;
};

}  // namespace ciuic::trace
