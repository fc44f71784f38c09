// SPDX-License-Identifier: Apache-2.0
// bug.h: a fault planted in the control plane, the engine's surroundings or a caller, which the
// judgement of a run must bring to light. (Those planted in channels: channel.h, Mutant.)
#pragma once

#include <cstdint>

namespace ciuic::sim {

enum class Bug : uint8_t {
  kNone = 0,
  // The control plane.
  kCauseIgnored,     // the hub hears of no cause
  kDecisionLost,     // one rank never hears of the decision
  kIdleNotTold,      // nor does one that waits for nothing
  kDecisionDiffers,  // one rank is told another text
  kDecisionOfOtherCode,
  kDecisionNamesOther,  // another rank than the one that is to blame
  kEndsTwice,           // a node ends its group a second time
  kGoneNotTold,         // the hub tells nobody of the dead
  kGoneIsEnd,           // and here ends the group for it, though nobody needs the dead
  kDeathUnseen,         // neither links nor lines tell of a death
  kSilenceUnseen,       // a silent rank still counts as heard
  kHeartbeatsLost,      // the hub hears no heartbeats of one rank
  kAnswersLost,         // ranks do not answer what they have called
  kHubEndUnseen,        // a rank does not see that its line has ended
  kLeaveNotTold,        // a close looks like a death
  kAbortIgnored,        // abort() does nothing
  // The data path.
  kDeadlineEarly,  // a deadline counts before its time
  kDeadlineIgnored,
  kCutUnseen,         // a link does not say that it has ended
  kFingerprintAlike,  // all calls have the same
  kEndsWell,          // an operation under way ends well where its group ends in an error
  kWritesLate,        // to the output of an operation that has ended
  kStagingKept,
  kOtherError,      // a later call ends in another error than its group
  kErrorForgotten,  // later calls go well
  // Survivors.
  kSurvivorMisled,  // one is told of other members than the rest
};
inline constexpr int kBugs = 27;
const char* name_of(Bug bug);

}  // namespace ciuic::sim
