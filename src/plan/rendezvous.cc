// SPDX-License-Identifier: Apache-2.0
// rendezvous.cc: whether plans end where nothing is buffered between two ranks.

#include "plan/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/validate.h"

namespace ciuic::plan {

namespace {

class Rendezvous {
 public:
  Rendezvous(const std::vector<Plan>& plans, const std::vector<Message>& messages, int chunks)
      : plans_(plans), messages_(messages), chunks_(chunks), moved_(messages.size(), 0) {
    const size_t size = plans.size();
    done_.resize(size);
    outgoing_.resize(size);
    incoming_.resize(size);
    for (size_t rank = 0; rank < size; ++rank) {
      done_[rank].assign(plans[rank].steps.size(), 0);
      outgoing_[rank].resize(plans[rank].steps.size());
      incoming_[rank].resize(plans[rank].steps.size());
    }
    // Messages come in the order of their senders' lists, so that the one before in a stream is the
    // last one seen of it.
    std::vector<std::vector<int>> last(size);
    before_.assign(messages.size(), -1);
    for (size_t number = 0; number < messages.size(); ++number) {
      const Message& message = messages[number];
      last[message.sender].resize(plans[message.sender].streams.size(), -1);
      int& latest = last[message.sender][message.sender_stream];
      before_[number] = latest;
      latest = static_cast<int>(number);
      outgoing_[message.sender][message.send_step].push_back(latest);
      incoming_[message.receiver][message.receive_step].push_back(latest);
    }
  }

  Status run() {
    std::vector<std::pair<int, int>> open;
    for (int rank = 0; rank < static_cast<int>(plans_.size()); ++rank) {
      for (int step = 0; step < static_cast<int>(plans_[rank].steps.size()); ++step) {
        if (plans_[rank].steps[step].kind != StepKind::kSend) open.emplace_back(rank, step);
      }
    }
    for (bool moved = true; moved && !open.empty();) {
      moved = false;
      std::erase_if(open, [&](const std::pair<int, int>& at) {
        while (done_[at.first][at.second] < chunks_ && advance(at.first, at.second)) moved = true;
        return done_[at.first][at.second] == chunks_;
      });
    }
    return open.empty() ? Status() : deadlock(open);
  }

 private:
  bool ready(int rank, int number, int chunk) const {
    const std::vector<int>& done = done_[rank];
    for (const Dependency& dependency : plans_[rank].steps[number].after) {
      if (done[dependency.step] < (dependency.whole ? chunks_ : chunk + 1)) return false;
    }
    return true;
  }

  // Whether the next chunk of the message stands ready at its sender.
  bool offered(int number) const {
    const Message& message = messages_[number];
    const int before = before_[number];
    if (before >= 0 && moved_[before] < chunks_) return false;
    return ready(message.sender, message.send_step, moved_[number]);
  }

  // Does one chunk of a step that receives or copies, where that is possible.
  bool advance(int rank, int number) {
    const int chunk = done_[rank][number];
    if (!ready(rank, number, chunk)) return false;
    const std::vector<int>& messages = incoming_[rank][number];
    if (!std::all_of(messages.begin(), messages.end(), [&](int m) { return offered(m); })) {
      return false;
    }
    for (const int message : messages) {
      ++moved_[message];
      const int sender = messages_[message].sender;
      const int step = messages_[message].send_step;
      int slowest = chunks_;
      for (const int sibling : outgoing_[sender][step]) {
        slowest = std::min(slowest, moved_[sibling]);
      }
      done_[sender][step] = slowest;
    }
    ++done_[rank][number];
    return true;
  }

  Status deadlock(const std::vector<std::pair<int, int>>& open) const {
    std::string text = "deadlock where nothing is buffered:";
    int last_rank = -1;
    int named = 0;
    for (const auto& [rank, step] : open) {
      if (rank == last_rank || named == 4) continue;
      last_rank = rank;
      ++named;
      text += fmt::format(" rank {} waits in {};", rank, step_text(plans_[rank], step));
    }
    text.pop_back();
    return Status(StatusCode::kInvalidArgument, text);
  }

  const std::vector<Plan>& plans_;
  const std::vector<Message>& messages_;
  const int chunks_;
  std::vector<int> moved_;                               // chunks of each message
  std::vector<int> before_;                              // the message before it in its stream
  std::vector<std::vector<int>> done_;                   // chunks of [rank][step]
  std::vector<std::vector<std::vector<int>>> outgoing_;  // messages of [rank][step]
  std::vector<std::vector<std::vector<int>>> incoming_;
};

}  // namespace

Status check_rendezvous(const std::vector<Plan>& plans, const std::vector<Message>& messages,
                        int chunks) {
  return Rendezvous(plans, messages, chunks).run();
}

}  // namespace ciuic::plan
