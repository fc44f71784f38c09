// SPDX-License-Identifier: Apache-2.0
// parse.h: what a flight recorder's memory, or a dump of it, says. Pure, and bounded by the bytes
// it is given: they may be of a process that was killed or still writes, of another version, or
// garbage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ciuic/status.h"
#include "trace/format.h"
#include "trace/ticks.h"

namespace ciuic::trace {

// Times are nanoseconds of CLOCK_MONOTONIC of the process's host; realtime_offset_ns added, of
// CLOCK_REALTIME.
struct Process {
  int pid = 0;
  uint64_t start_ticks = 0;
  int launch_rank = -1;
  int launch_size = -1;
  std::string boot_id;
  std::string host;
  std::string library;
  uint32_t ring_events = 0;     // what the ring can hold
  uint64_t written_events = 0;  // in all; more than ring_events: the oldest are gone
  uint64_t torn_events = 0;     // in the ring, and not whole
  uint64_t groups_lost = 0;
  int64_t realtime_offset_ns = 0;
  std::optional<int64_t> dumped_ns;
  Dump dump;
};

struct Group {
  uint32_t number = 0;  // in the process
  uint32_t id = 0;
  uint32_t epoch = 0;
  uint64_t job = 0;
  int rank = 0;
  int size = 1;
  std::string name;
  int64_t joined_ns = 0;
  std::optional<int64_t> failed_ns;
  std::optional<int64_t> closed_ns;
  StatusCode status = StatusCode::kOk;
  std::string text;
};

struct Operation {
  uint32_t group = 0;
  uint32_t sequence = 0;
  bool is_message = false;  // between two ranks: see EventFlags::kMessage
  bool is_known = false;    // its call is there; else only that it ended
  std::string name;
  std::string algorithm;  // may be empty
  std::string dtype;
  std::string op;  // empty: reduces nothing
  int root = -1;
  int64_t count = 0;
  uint64_t bytes = 0;
  uint32_t fingerprint = 0;
  std::optional<int64_t> called_ns;
  std::optional<int64_t> started_ns;
  std::optional<int64_t> ended_ns;  // may be missing where has_ended
  bool has_ended = false;
  StatusCode status = StatusCode::kOk;
};

struct Trace {
  Process process;
  std::vector<Group> groups;
  std::vector<Operation> operations;  // in the order of their calls
};

// `now` stands for the moment at which the bytes were read where they do not say: the clock is put
// right by it. kInvalidArgument: no flight recorder's memory, or not of this version.
Result<Trace> parse(std::span<const std::byte> bytes, const Moment* now = nullptr);

}  // namespace ciuic::trace
