// SPDX-License-Identifier: Apache-2.0
// sequence_model.h: operations one after another on all ranks, under a model of the engine's flow
// control: an eager message, announcements, a window of credits, a pool of slots with many readers.
//
// Hosts share memory: a rank writes a chunk into a slot of its pool, and a reader gives it back
// when its step used the chunk or when the reader copied it aside. Between hosts a chunk is read
// from the sender's buffer at the moment when the receiver takes it off the link. Operations
// overlap; when one has ended on a rank, its buffers are that rank's next operation's.
//
// The model finds: a deadlock; a slot or buffer that is overwritten while it is still to be read;
// messages out of order; more chunks under way than there are credits.
#pragma once

#include <cstdint>
#include <vector>

#include "ciuic/status.h"
#include "plan/layout.h"
#include "plan/plan.h"

namespace ciuic::plan {

// Faults that the model can have, to show that it would find them.
enum class Defect : uint8_t {
  kNone = 0,
  kSlotReusedEarly,     // a slot is written again while a reader still needs it
  kSlotNeverReleased,   // a reader forgets to give slots back
  kCreditLost,          // the receiver's credits do not arrive
  kWindowIgnored,       // the sender goes on without credits
  kAnnouncementLost,    // no rank says that it has started
  kCompletionLost,      // a step is done, but those after it never hear of it
  kEndsBeforeSent,      // an operation ends while its messages still wait to be read
  kStreamOrderIgnored,  // a message overtakes the one before it
};

struct SequenceSetup {
  int chunks = 2;      // of every message
  int window = 1;      // chunks under way an (operation, link, lane)
  int slots = 1;       // of each rank
  int max_active = 2;  // operations at once on a rank, counted from the oldest
  // Messages to a peer that is not known to have started. A receiver says how far it is when half
  // as many have come from a peer; together with those of max_active - 1 later operations they must
  // leave room for one, or the oldest operation could wait for ever.
  int eager_operations = 2;
  int slow_rank = -1;  // moves only now and then
  uint64_t seed = 1;   // of the order of events
  Defect defect = Defect::kNone;
};

// `operations[number][rank]` are finished plans that prove() accepts each. kInvalidArgument names
// operation, rank and step.
Status run_sequence(const Layout& layout, const std::vector<std::vector<Plan>>& operations,
                    const SequenceSetup& setup);

}  // namespace ciuic::plan
