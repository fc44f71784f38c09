// SPDX-License-Identifier: Apache-2.0
// assembly.cc: rounds of gathering through rank 0.

#include "bootstrap/assembly.h"

#include <fmt/format.h>

#include <algorithm>

namespace ciuic::bootstrap {

static constexpr int64_t kLastWordMs = 1000;  // for telling the others of an error

Assembly::Assembly(int rank, Roll roll, std::vector<std::unique_ptr<Channel>> channels)
    : rank_(rank), roll_(std::move(roll)), channels_(std::move(channels)) {}

// A rank that has given nothing yet.
static Status nothing_yet() { return Status(StatusCode::kTimeout, ""); }

static bool is_missing(const Result<std::string>& given) {
  return !given.ok() && given.status().code() == StatusCode::kTimeout &&
         given.status().message().empty();
}

std::string Assembly::who_is_missing(const std::vector<Result<std::string>>& given) const {
  std::string names;
  for (size_t rank = 0; rank < given.size(); ++rank) {
    if (!is_missing(given[rank])) continue;
    names += (names.empty() ? "" : ", ") + roll_.cards[rank].who();
  }
  return names;
}

// Takes what has come from one rank. An error: the rank is gone, or talks nonsense.
Status Assembly::take_round(int rank, std::vector<Result<std::string>>* given, int* missing) {
  Channel& channel = *channels_[static_cast<size_t>(rank)];
  const Status status = channel.progress();
  std::string frame;
  if (!channel.receive(&frame)) return status;
  Result<Round> round = decode_round(frame);
  if (!round.ok()) return round.status();
  if (round->round != round_) return Status(StatusCode::kInvalidArgument, "another round");
  auto& place = (*given)[static_cast<size_t>(rank)];
  place = round->status.ok() ? Result<std::string>(std::move(round->bytes)) : round->status;
  --*missing;
  return {};
}

RoundResult Assembly::collect(const Result<std::string>& mine, TimeNs deadline,
                              Bystander* bystander) {
  RoundResult result{round_, {}, {}};
  std::vector<Result<std::string>> given(static_cast<size_t>(size()), nothing_yet());
  given[0] = mine;
  int missing = size() - 1;
  for (bool first = true; missing > 0; first = false) {
    std::vector<pollfd> fds;
    for (int rank = 1; rank < size(); ++rank) {
      const Channel& channel = *channels_[static_cast<size_t>(rank)];
      const bool awaited = is_missing(given[static_cast<size_t>(rank)]);
      fds.push_back({awaited ? channel.fd() : -1, channel.events(), 0});
    }
    if (bystander != nullptr) bystander->add_to(&fds);
    // Frames may have been read before, together with others: look at all once before waiting.
    if (!first) result.status = wait_for_any(&fds, deadline);
    if (bystander != nullptr) bystander->progress();
    for (int rank = 1; rank < size() && result.status.ok(); ++rank) {
      if (!is_missing(given[static_cast<size_t>(rank)])) continue;
      if (!first && fds[static_cast<size_t>(rank) - 1].revents == 0) continue;
      const Status status = take_round(rank, &given, &missing);
      if (status.ok()) continue;
      const std::string who = roll_.cards[static_cast<size_t>(rank)].who();
      result.status =
          Status(StatusCode::kPeerLost, who + " left during the join: " + status.message());
    }
    if (result.status.ok() && missing > 0 && now_ns() >= deadline) {
      result.status = Status(StatusCode::kTimeout,
                             "the join did not end in time: nothing from " + who_is_missing(given));
    }
    if (!result.status.ok()) return result;
  }
  for (int rank = 0; rank < size(); ++rank) {
    Result<std::string>& of_rank = given[static_cast<size_t>(rank)];
    if (!of_rank.ok()) {
      // All ranks are told it, and "no memory" would be looked for in the wrong place.
      const std::string who = roll_.cards[static_cast<size_t>(rank)].who();
      result.status = {of_rank.status().code(),
                       fmt::format("{}: {}", who, of_rank.status().message())};
      result.bytes.clear();
      break;
    }
    result.bytes.push_back(std::move(*of_rank));
  }
  return result;
}

RoundResult Assembly::ask_rank_0(const Result<std::string>& mine, TimeNs deadline,
                                 Bystander* bystander) {
  Channel& channel = *channels_[0];
  channel.send(encode_round(round_, mine));
  RoundResult result{round_, {}, {}};
  std::string frame;
  while (result.status.ok() && !channel.receive(&frame)) {
    const Status status = channel.progress();
    if (bystander != nullptr) bystander->progress();
    if (channel.receive(&frame)) break;
    if (!status.ok()) {
      result.status = Status(StatusCode::kPeerLost,
                             roll_.cards[0].who() + " left during the join: " + status.message());
    } else if (now_ns() >= deadline) {
      result.status = Status(StatusCode::kTimeout,
                             "the join did not end in time: nothing from " + roll_.cards[0].who());
    } else {
      std::vector<pollfd> fds = {{channel.fd(), channel.events(), 0}};
      if (bystander != nullptr) bystander->add_to(&fds);
      result.status = wait_for_any(&fds, deadline);
    }
  }
  if (!result.status.ok()) return result;
  Result<RoundResult> answer = decode_result(frame);
  if (!answer.ok()) return {round_, answer.status(), {}};
  const bool whole = !answer->status.ok() || answer->bytes.size() == roll_.cards.size();
  if (answer->round != round_ || !whole) {
    return {round_, Status(StatusCode::kInvalidArgument, "rank 0 answered another round"), {}};
  }
  return std::move(*answer);
}

void Assembly::watch(std::vector<pollfd>* fds) const {
  for (const auto& channel : channels_) {
    const bool awaited = channel != nullptr && !channel->has_frame();
    fds->push_back({awaited ? channel->fd() : -1, awaited ? channel->events() : short{0}, 0});
  }
}

Status Assembly::look(std::span<const pollfd> entries) {
  for (size_t place = 0; place < channels_.size(); ++place) {
    Channel* channel = channels_[place].get();
    if (channel == nullptr) continue;
    const bool happened = place < entries.size() && entries[place].revents != 0;
    const Status status = happened ? channel->progress() : Status();
    // Rank 0 has the others' parts of the next round early; they have its verdict before theirs
    // only where it is a bad one.
    if (channel->has_frame() && rank_ == 0) continue;
    if (channel->has_frame()) return Status(StatusCode::kPeerLost, "the join has failed meanwhile");
    if (status.ok()) continue;
    return Status(StatusCode::kPeerLost,
                  roll_.cards[place].who() + " left during the join: " + status.message());
  }
  return {};
}

Result<std::vector<std::string>> Assembly::gather(const Result<std::string>& mine, TimeNs deadline,
                                                  Bystander* bystander) {
  if (!failed_.ok()) return failed_;
  ++round_;
  RoundResult result = rank_ == 0 ? collect(mine, answer_by(deadline, now_ns()), bystander)
                                  : ask_rank_0(mine, deadline, bystander);
  if (rank_ == 0 && size() > 1) {
    const std::string frame = encode_result(result);
    const TimeNs last = std::max(deadline, deadline_after(now_ns(), kLastWordMs));
    for (const auto& channel : channels_) {
      if (!channel) continue;
      channel->send(frame);
      // Whoever takes nothing is lost, and is met again in the next round, or by its links.
      const TimeNs until = result.status.ok() ? last : deadline_after(now_ns(), kLastWordMs);
      [[maybe_unused]] const Status sent = channel->flush(until);
    }
  }
  failed_ = result.status;
  if (!failed_.ok()) return failed_;
  return std::move(result.bytes);
}

}  // namespace ciuic::bootstrap
