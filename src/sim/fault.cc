// SPDX-License-Identifier: Apache-2.0
// fault.cc: faults by name.

#include "sim/fault.h"

#include <fmt/format.h>

namespace ciuic::sim {

const char* name_of(FaultKind kind) {
  static constexpr const char* kNames[kFaultKinds] = {
      "none",         "killed",          "exited",       "stopped",         "paused",
      "never_calls",  "calls_late",      "cut_data",     "cut_control",     "cut_both",
      "dropped_data", "dropped_control", "dropped_both", "calls_otherwise", "bad_message",
      "bad_control",  "aborts",          "closes_early", "short_timeout"};
  return kNames[static_cast<int>(kind)];
}

const char* name_of(OtherCall lie) {
  static constexpr const char* kNames[kOtherCalls] = {"operation", "dtype", "count",
                                                      "op",        "root",  "order"};
  return kNames[static_cast<int>(lie)];
}

const char* name_of(BadMessage lie) {
  static constexpr const char* kNames[kBadMessages] = {
      "fingerprint",     "step",    "chunk", "message_bytes", "payload_bytes", "sequence_ahead",
      "sequence_behind", "credits", "lane",  "group",         "epoch"};
  return kNames[static_cast<int>(lie)];
}

const char* name_of(BadControl lie) {
  static constexpr const char* kNames[kBadControls] = {"garbage", "truncated", "nonsense"};
  return kNames[static_cast<int>(lie)];
}

bool Fault::hits_data() const {
  return kind == FaultKind::kCutData || kind == FaultKind::kCutBoth ||
         kind == FaultKind::kDroppedData || kind == FaultKind::kDroppedBoth;
}

bool Fault::hits_control() const {
  return kind == FaultKind::kCutControl || kind == FaultKind::kCutBoth ||
         kind == FaultKind::kDroppedControl || kind == FaultKind::kDroppedBoth ||
         kind == FaultKind::kBadControl;
}

std::string Fault::text() const {
  std::string text = fmt::format("process {} {}", victim, name_of(kind));
  if (cuts() || drops()) {
    text += other < 0 ? std::string(" from all") : fmt::format(" from {}", other);
  }
  if (kind == FaultKind::kCallsOtherwise) {
    text += fmt::format(" ({} of call {})", name_of(static_cast<OtherCall>(lie)), call);
  }
  if (kind == FaultKind::kNeverCalls || kind == FaultKind::kCallsLate) {
    text += fmt::format(" (call {})", call);
  }
  if (kind == FaultKind::kBadMessage) {
    text += fmt::format(" ({} after {})", name_of(static_cast<BadMessage>(lie)), call);
  }
  if (kind == FaultKind::kBadControl) {
    text += fmt::format(" ({})", name_of(static_cast<BadControl>(lie)));
  }
  if (group >= 0) text += fmt::format(" in group {}", group);
  text += fmt::format(" at {} ns", at);
  if (until != kNever) text += fmt::format(" until {} ns", until);
  if (loses) text += ", losing what is under way";
  return text;
}

}  // namespace ciuic::sim
