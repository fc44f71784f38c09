// SPDX-License-Identifier: Apache-2.0
// matching.h: which send of one rank's plan meets which receive of another's.
#pragma once

#include <vector>

#include "ciuic/status.h"
#include "plan/plan.h"

namespace ciuic::plan {

// One message from one rank to another.
struct Message {
  int sender = 0;
  int send_step = 0;
  int receiver = 0;
  int receive_step = 0;
  int lane = 0;
  int position = 0;       // how many messages of (sender, receiver, lane) come before it
  int sender_stream = 0;  // index into the sender's Plan::streams
  int receiver_stream = 0;
};

// All messages of an operation, by plans[rank], each finished. They are in the order of (sender,
// send_step, receiver). kInvalidArgument where a send has no receive, or a receive no send.
Result<std::vector<Message>> match(const std::vector<Plan>& plans);

}  // namespace ciuic::plan
