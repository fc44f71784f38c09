// SPDX-License-Identifier: Apache-2.0
// bug.cc: bugs by name.

#include "sim/bug.h"

namespace ciuic::sim {

const char* name_of(Bug bug) {
  static constexpr const char* kNames[kBugs] = {"none",
                                                "cause_ignored",
                                                "decision_lost",
                                                "idle_not_told",
                                                "decision_differs",
                                                "decision_of_other_code",
                                                "decision_names_other",
                                                "ends_twice",
                                                "gone_not_told",
                                                "gone_is_end",
                                                "death_unseen",
                                                "silence_unseen",
                                                "heartbeats_lost",
                                                "answers_lost",
                                                "hub_end_unseen",
                                                "leave_not_told",
                                                "abort_ignored",
                                                "deadline_early",
                                                "deadline_ignored",
                                                "cut_unseen",
                                                "fingerprint_alike",
                                                "ends_well",
                                                "writes_late",
                                                "staging_kept",
                                                "other_error",
                                                "error_forgotten",
                                                "survivor_misled"};
  return kNames[static_cast<int>(bug)];
}

}  // namespace ciuic::sim
