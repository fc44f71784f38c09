// SPDX-License-Identifier: Apache-2.0
// sequence_state.cc: an operation of a sequence before anything of it has run.

#include "plan/sequence_state.h"

#include <numeric>
#include <utility>

namespace ciuic::plan {

Result<OperationState> operation_state(const std::vector<Plan>& plans) {
  Result<std::vector<Message>> messages = match(plans);
  if (!messages.ok()) return messages.status();
  const size_t size = plans.size();
  OperationState state;
  state.plans = &plans;
  state.messages = std::move(*messages);
  state.before.assign(state.messages.size(), -1);
  state.sent.assign(state.messages.size(), 0);
  state.taken.assign(state.messages.size(), 0);
  state.arrived.assign(state.messages.size(), 0);
  state.messages_from.assign(size, std::vector<int>(size, 0));
  state.outgoing.resize(size);
  state.incoming.resize(size);
  state.activities.resize(size);
  std::vector<std::vector<int>> last(size);
  for (size_t rank = 0; rank < size; ++rank) {
    const size_t steps = plans[rank].steps.size();
    const size_t streams = plans[rank].streams.size();
    state.outgoing[rank].resize(steps);
    state.incoming[rank].resize(steps);
    last[rank].assign(streams, -1);
    Activity& activity = state.activities[rank];
    activity.done.assign(steps, 0);
    activity.open.resize(steps);
    std::iota(activity.open.begin(), activity.open.end(), 0);
    activity.heard.assign(size, false);
    activity.under_way.assign(streams, 0);
    activity.inbox.resize(streams);
  }
  for (size_t number = 0; number < state.messages.size(); ++number) {
    const Message& message = state.messages[number];
    int& latest = last[message.sender][message.sender_stream];
    state.before[number] = latest;
    latest = static_cast<int>(number);
    state.outgoing[message.sender][message.send_step].push_back(latest);
    state.incoming[message.receiver][message.receive_step].push_back(latest);
    ++state.messages_from[message.receiver][message.sender];
  }
  return state;
}

}  // namespace ciuic::plan
