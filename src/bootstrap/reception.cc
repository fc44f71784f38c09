// SPDX-License-Identifier: Apache-2.0
// reception.cc: one poll(2) loop over rank 0's listeners and visitors.

#include "bootstrap/reception.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "drivers/posix/socket.h"
#include "security/admission.h"

namespace ciuic::bootstrap {

static constexpr int64_t kProofMs = 10'000;  // a visitor's time for handshake and card
static constexpr int64_t kLingerMs = 500;    // after an error, for those who come yet
static constexpr int64_t kLastWordMs = 1'000;
static constexpr int64_t kAcceptPauseMs = 100;  // when descriptors have run out
static constexpr size_t kMaxUnproven = 1'024;

Reception::Reception(std::vector<posix::UniqueFd> listeners, const Card& mine, Roll roll,
                     TimeNs deadline, FencedStore* fence)
    : listeners_(std::move(listeners)),
      fence_(fence),
      mine_(mine),
      roll_(std::move(roll)),
      deadline_(answer_by(deadline, now_ns())),
      by_rank_(static_cast<size_t>(mine.size)) {
  roll_.cards.resize(static_cast<size_t>(mine.size));
  mine_.former_rank = former_rank(0);
  roll_.cards[0] = mine_;
}

void Reception::fail(const Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  linger_until_ = std::min(patience(), deadline_after(now_ns(), kLingerMs));
}

void Reception::turn_away(std::list<Visitor>::iterator visitor, const std::string& why) {
  ++strangers_;
  last_stranger_ = why;
  visitors_.erase(visitor);
}

// False: nobody can go.
bool Reception::make_room() {
  const auto visitor = security::first_to_go(visitors_);
  if (visitor == visitors_.end()) return false;
  turn_away(visitor, "it had proven nothing when others came");
  return true;
}

void Reception::accept_waiting(int listener) {
  const size_t most = security::most_unproven(kMaxUnproven);
  for (size_t taken = 0; taken < security::accepts_at_once(most); ++taken) {
    Result<posix::UniqueFd> fd = posix::accept_from(listener);
    // No descriptor is free, most likely: the connection stays in the queue until one is.
    if (!fd.ok() && make_room()) continue;
    accepted_ = fd.status();
    if (!fd.ok()) accept_from_ = deadline_after(now_ns(), kAcceptPauseMs);
    if (!fd.ok() || !fd->valid()) return;
    security::Identity identity;
    identity.job = roll_.job;
    identity.epoch = roll_.epoch;
    identity.group = roll_.group;
    identity.to = 0;
    identity.tls = roll_.tls ? security::UseTls::kYes : security::UseTls::kNo;
    Visitor visitor;
    visitor.channel = std::make_unique<Channel>(
        std::move(*fd), security::Handshake::accepting(roll_.secret, identity), kMaxFrameToRank0);
    visitor.deadline = deadline_after(now_ns(), kProofMs);
    visitors_.push_back(std::move(visitor));
    const auto unproven = std::count_if(visitors_.begin(), visitors_.end(),
                                        [](const Visitor& each) { return !each.is_proven(); });
    if (static_cast<size_t>(unproven) > most) make_room();
  }
}

void Reception::take_card(Visitor* visitor, const std::string& frame) {
  visitor->has_card = true;
  visitor->deadline = kNever;
  Result<CardFrame> told = decode_card_frame(frame);
  if (!told.ok()) return fail(told.status());
  Card& card = told->card;
  card.former_rank = former_rank(card.rank);
  visitor->deadline = deadline_after(now_ns(), told->can_wait_ms);
  const Status same = compare(mine_, card);
  if (!same.ok()) return fail(same);
  if (card.rank < 0 || card.rank >= mine_.size) {
    return fail(Status(StatusCode::kInvalidArgument,
                       fmt::format("{} is outside the {} ranks", card.who(), mine_.size)));
  }
  const auto place = static_cast<size_t>(card.rank);
  if (card.rank == 0 || by_rank_[place] != nullptr) {
    return fail(
        Status(StatusCode::kMismatch, fmt::format("rank {} is there twice: {} and {}", card.rank,
                                                  roll_.cards[place].who(), card.who())));
  }
  by_rank_[place] = visitor;
  visitor->rank = card.rank;
  roll_.cards[place] = card;
  ++present_;
}

// It has proven the secret, so its word counts; it has gone without handing over a card.
Status Reception::tls_differs(int rank) const {
  return Status(
      StatusCode::kMismatch,
      fmt::format("CIUIC_TLS differs: {} has {}, rank {} has {}; set it alike on all ranks",
                  mine_.who(), roll_.tls ? 1 : 0, rank, roll_.tls ? 0 : 1));
}

// False: the visitor has to go.
bool Reception::progress(Visitor* visitor) {
  Status status = visitor->channel->progress();
  if (visitor->channel->proven() && !visitor->welcomed) {
    visitor->welcomed = true;
    visitor->channel->send(std::string(1, static_cast<char>(Frame::kWelcome)));
    if (status.ok()) status = visitor->channel->progress();
  }
  std::string frame;
  if (!visitor->has_card && visitor->channel->receive(&frame)) take_card(visitor, frame);
  if (status.ok()) return true;
  if (visitor->channel->tls_differs()) {
    fail(tls_differs(visitor->channel->peer().from));
  } else if (!visitor->welcomed && status.code() != StatusCode::kPeerLost) {
    ++strangers_;
    last_stranger_ = status.message();
  }
  if (visitor->rank >= 0) {  // it may be started anew, and come again
    by_rank_[static_cast<size_t>(visitor->rank)] = nullptr;
    --present_;
  }
  return false;
}

Status Reception::missing_ranks() const {
  std::string names;
  int missing = 0;
  for (int rank = 1; rank < mine_.size; ++rank) {
    if (by_rank_[static_cast<size_t>(rank)] != nullptr) continue;
    if (++missing <= 16) {
      const std::string name = rank_name(rank, former_rank(rank));
      names += (names.empty() ? "" : ", ") + name.substr(name.find(' ') + 1);
    }
  }
  if (missing > 16) names += fmt::format(" and {} more", missing - 16);
  std::string text = fmt::format("{} {} did not come to the join of {} ranks in time",
                                 missing == 1 ? "rank" : "ranks", names, mine_.size);
  if (strangers_ > 0) {
    text += fmt::format("; {} connections were turned away, the last one: {}", strangers_,
                        last_stranger_);
  }
  text += security::while_unable_to_accept(mine_.who(), accepted_);
  return Status(StatusCode::kTimeout, text);
}

TimeNs Reception::patience() const {
  TimeNs until = deadline_;
  for (const Visitor& visitor : visitors_) {
    if (visitor.has_card) until = std::min(until, visitor.deadline);
  }
  return until;
}

TimeNs Reception::next_deadline() const {
  TimeNs next = std::min(deadline_, linger_until_);
  if (accept_from_ > now_ns()) next = std::min(next, accept_from_);
  for (const Visitor& visitor : visitors_) next = std::min(next, visitor.deadline);
  return next;
}

void Reception::answer_failure() {
  const std::string frame = encode_failure(failure_);
  const TimeNs until = deadline_after(now_ns(), kLastWordMs);
  for (Visitor& visitor : visitors_) {
    if (!visitor.welcomed) continue;
    visitor.channel->send(frame);
    [[maybe_unused]] const Status sent = visitor.channel->flush(until);
  }
}

Result<std::unique_ptr<Assembly>> Reception::answer_roll() {
  listeners_.clear();  // from here on, whoever connects is told by the system that it is late
  const std::string frame = encode_roll(roll_);
  const TimeNs until = deadline_after(now_ns(), 10 * kLastWordMs);
  std::vector<std::unique_ptr<Channel>> channels(1);
  for (size_t rank = 1; rank < by_rank_.size(); ++rank) {
    by_rank_[rank]->channel->send(frame);
    // One that has gone meanwhile is named in the next round, to all.
    [[maybe_unused]] const Status sent = by_rank_[rank]->channel->flush(until);
    channels.push_back(std::move(by_rank_[rank]->channel));
  }
  if (strangers_ > 0) {
    log_warn("{} connections to rank 0 were turned away while the group joined, the last one: {}",
             strangers_, last_stranger_);
  }
  auto assembly = std::make_unique<Assembly>(0, std::move(roll_), std::move(channels));
  assembly->count_strangers(strangers_);
  return assembly;
}

// Who has met the others and is gone does not come any more.
void Reception::look_at_fence(const std::vector<pollfd>& fds, size_t first) {
  const bool happened = std::any_of(fds.begin() + static_cast<std::ptrdiff_t>(first), fds.end(),
                                    [](const pollfd& entry) { return entry.revents != 0; });
  if (!happened) return;
  const Status left = fence_->look();
  if (!left.ok()) fail(left);
}

Result<std::unique_ptr<Assembly>> Reception::run() {
  while (true) {
    const TimeNs now = now_ns();
    const bool all = present_ == mine_.size;
    if (failure_.ok() && all) return answer_roll();
    if (now >= patience()) fail(missing_ranks());
    if (!failure_.ok() && now >= linger_until_) {
      answer_failure();
      return failure_;
    }
    std::vector<pollfd> fds;
    for (const posix::UniqueFd& listener : listeners_) {
      fds.push_back({now < accept_from_ ? -1 : listener.get(), POLLIN, 0});  // -1 is passed over
    }
    for (const Visitor& visitor : visitors_) {
      fds.push_back({visitor.channel->fd(), visitor.channel->events(), 0});
    }
    const size_t of_fence = fds.size();
    if (fence_ != nullptr && failure_.ok()) fence_->watch(&fds);
    CIUIC_RETURN_IF_ERROR(wait_for_any(&fds, next_deadline()));
    size_t index = listeners_.size();
    for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
      const auto next = std::next(visitor);
      const bool happened = fds[index++].revents != 0;
      if (happened && !progress(&*visitor)) {
        visitors_.erase(visitor);
      } else if (!visitor->has_card && now >= visitor->deadline) {
        turn_away(visitor, "it proved nothing in time");
      }
      visitor = next;
    }
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (fds[i].revents != 0) accept_waiting(listeners_[i].get());
    }
    look_at_fence(fds, of_fence);
  }
}

}  // namespace ciuic::bootstrap
