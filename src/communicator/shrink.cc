// SPDX-License-Identifier: Apache-2.0
// shrink.cc: doors over sockets, and the meeting place that is left when all have come.

#include "communicator/shrink.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <map>
#include <optional>

#include "bootstrap/bytes.h"
#include "bootstrap/channel.h"
#include "bootstrap/dial.h"
#include "bootstrap/fenced_store.h"
#include "communicator/muster.h"
#include "drivers/posix/socket.h"

namespace ciuic {

using bootstrap::Channel;

namespace {

constexpr uint32_t kMusterPurpose = 4;  // of connections; bootstrap/messages.h has the others
constexpr size_t kMaxFrameBytes = 128 * 1024;
constexpr size_t kMaxVisitors = 1024;
constexpr TimeNs kRetryAfter = 50'000'000;

enum class Frame : uint8_t {
  kHere = 1,     // to one that is called: whom the caller knows to be gone
  kThere = 2,    // from it: it musters, too
  kMembers = 3,  // from the leader: who is in
  kMeet = 4,     // from the leader: what MeetingPoint::broadcast() hands on
};

std::string frame(Frame kind, std::string_view bytes) {
  return bootstrap::ByteWriter().u8(static_cast<uint8_t>(kind)).raw(bytes).take();
}

std::string ranks_frame(Frame kind, const std::vector<bool>& ranks) {
  std::string bytes;
  for (const bool is_in : ranks) bytes += is_in ? '1' : '0';
  return frame(kind, bytes);
}

// By rank; empty where the frame is another one.
std::vector<bool> ranks_of(Frame kind, const std::string& bytes, size_t size) {
  if (bytes.size() != size + 1 || bytes[0] != static_cast<char>(kind)) return {};
  std::vector<bool> ranks;
  for (size_t i = 1; i < bytes.size(); ++i) ranks.push_back(bytes[i] == '1');
  return ranks;
}

class SocketDoors final : public control::Doors {
 public:
  explicit SocketDoors(const OldGroup& old) : old_(old), size_(old.roll.cards.size()) {}

  void call(int rank, const std::vector<bool>& gone) override {
    calls_[rank].here = ranks_frame(Frame::kHere, gone);
  }
  Answer answer(int rank) override {
    const auto found = calls_.find(rank);
    return found == calls_.end() ? Answer::kNone : found->second.answer;
  }
  bool has_come(int rank) override { return visitor_of(rank) != nullptr; }
  std::vector<bool> gone_by(int rank) override {
    const Visitor* visitor = visitor_of(rank);
    return visitor == nullptr ? std::vector<bool>() : visitor->gone;
  }
  void announce(int rank, const std::vector<bool>& members) override {
    visitor_of(rank)->channel->send(ranks_frame(Frame::kMembers, members));
  }
  bool announced(int rank, std::vector<bool>* members) override {
    const Call& called = calls_[rank];
    if (called.members.empty()) return false;
    *members = called.members;
    return true;
  }

  // Does what the sockets allow, after it has waited for them.
  Status progress(TimeNs until);

  // The connection that came from a rank, or went to it.
  std::unique_ptr<Channel> take(int rank) {
    if (Visitor* visitor = visitor_of(rank)) return std::move(visitor->channel);
    return std::move(calls_[rank].channel);
  }

 private:
  struct Call {
    std::string here;
    std::optional<bootstrap::Dial> dial;
    std::unique_ptr<Channel> channel;  // proven
    TimeNs retry_at = 0;
    Answer answer = Answer::kNone;
    std::vector<bool> members;
  };
  struct Visitor {
    std::unique_ptr<Channel> channel;
    bool welcomed = false;
    std::vector<bool> gone;  // empty: it has not said it
    bool lost = false;
  };

  Visitor* visitor_of(int rank) {
    for (Visitor& visitor : visitors_) {
      const bool is_it = !visitor.lost && !visitor.gone.empty() && visitor.channel != nullptr &&
                         visitor.channel->peer().from == rank;
      if (is_it) return &visitor;
    }
    return nullptr;
  }
  security::Identity identity(int from, int to) const {
    security::Identity identity;
    identity.job = old_.roll.job;
    identity.epoch = old_.roll.epoch;
    identity.group = old_.roll.group;
    identity.purpose = kMusterPurpose;
    identity.from = from;
    identity.to = to;
    identity.tls = old_.roll.tls ? security::UseTls::kYes : security::UseTls::kNo;
    return identity;
  }
  void accept_waiting();
  void progress(Visitor* visitor);
  void progress(int rank, Call* call, TimeNs now);

  const OldGroup& old_;
  size_t size_;
  std::map<int, Call> calls_;
  std::list<Visitor> visitors_;
};

void SocketDoors::accept_waiting() {
  for (const posix::UniqueFd& listener : old_.listeners) {
    while (visitors_.size() < kMaxVisitors + size_) {
      Result<posix::UniqueFd> fd = posix::accept_from(listener.get());
      if (!fd.ok() || !fd->valid()) break;
      Visitor visitor;
      visitor.channel = std::make_unique<Channel>(
          std::move(*fd), security::Handshake::accepting(old_.roll.secret, identity(-1, old_.rank)),
          kMaxFrameBytes);
      visitors_.push_back(std::move(visitor));
    }
  }
}

void SocketDoors::progress(Visitor* visitor) {
  Channel& channel = *visitor->channel;
  Status status = channel.progress();
  if (channel.proven() && !visitor->welcomed) {
    visitor->welcomed = true;
    const security::Identity& peer = channel.peer();
    const bool is_ours = peer.purpose == kMusterPurpose && peer.from >= 0 &&
                         peer.from < static_cast<int>(size_) && peer.from != old_.rank;
    if (is_ours) {
      channel.send(frame(Frame::kThere, ""));
      if (status.ok()) status = channel.progress();
    } else {
      visitor->lost = true;
    }
  }
  std::string bytes;
  if (visitor->gone.empty() && channel.receive(&bytes)) {
    visitor->gone = ranks_of(Frame::kHere, bytes, size_);
    if (visitor->gone.empty()) visitor->lost = true;
  }
  if (!status.ok()) visitor->lost = true;
}

// Whether somebody's machine has said that nobody listens at the address any more. Each rank
// listens at all its addresses for as long as it may be called.
static bool nobody_listens(bootstrap::Dial& dial) {
  const auto& attempts = dial.attempts();
  return std::any_of(attempts.begin(), attempts.end(), [](const auto& attempt) {
    return attempt.status.message().find("ECONNREFUSED") != std::string::npos;
  });
}

void SocketDoors::progress(int rank, Call* call, TimeNs now) {
  if (call->answer == Answer::kGone) return;
  if (call->channel == nullptr && !call->dial) {
    if (now < call->retry_at) return;
    call->dial.emplace(old_.reachable.addresses(old_.rank, rank), old_.roll.secret,
                       identity(old_.rank, rank), kMaxFrameBytes);
  }
  if (call->dial) {
    call->dial->progress();
    if (call->dial->any_proven()) {
      call->channel = std::make_unique<Channel>(call->dial->take());
      call->channel->send(call->here);
      call->dial.reset();
    } else if (nobody_listens(*call->dial)) {
      call->answer = Answer::kGone;
      call->dial.reset();
    } else if (call->dial->settled()) {
      call->dial.reset();
      call->retry_at = now + kRetryAfter;
    }
    if (call->channel == nullptr) return;
  }
  const Status status = call->channel->progress();
  std::string bytes;
  // One frame after the members is the meeting's, and stays with the channel.
  while (call->members.empty() && call->channel->receive(&bytes)) {
    if (bytes == frame(Frame::kThere, "")) call->answer = Answer::kThere;
    call->members = ranks_of(Frame::kMembers, bytes, size_);
  }
  if (status.ok() || !call->members.empty()) return;
  // It was there and left: it may have died, and the next call tells.
  call->channel.reset();
  call->answer = Answer::kNone;
  call->retry_at = now + kRetryAfter;
}

Status SocketDoors::progress(TimeNs until) {
  std::vector<pollfd> fds;
  for (const posix::UniqueFd& listener : old_.listeners) fds.push_back({listener.get(), POLLIN, 0});
  for (const Visitor& visitor : visitors_) {
    fds.push_back({visitor.channel->fd(), visitor.channel->events(), 0});
  }
  for (auto& [rank, call] : calls_) {
    if (call.answer == Answer::kGone) continue;
    if (call.dial) {
      call.dial->add_to(&fds);
    } else if (call.channel != nullptr) {
      fds.push_back({call.channel->fd(), call.channel->events(), 0});
    } else {
      until = std::min(until, call.retry_at);
    }
  }
  CIUIC_RETURN_IF_ERROR(bootstrap::wait_for_any(&fds, until));
  accept_waiting();
  for (Visitor& visitor : visitors_) progress(&visitor);
  visitors_.remove_if([](const Visitor& visitor) { return visitor.lost; });
  const TimeNs now = now_ns();
  for (auto& [rank, call] : calls_) progress(rank, &call, now);
  return {};
}

// The survivors' connections to their leader, as the store of their join.
class MeetingPoint final : public Store, public bootstrap::FencedStore {
 public:
  // `members`: by old rank. `channels`: the leader's to the others in their order, or to the
  // leader.
  MeetingPoint(uint32_t old_epoch, bool leads, const std::vector<bool>& members,
               std::vector<std::unique_ptr<Channel>> channels)
      : old_epoch_(old_epoch), leads_(leads), channels_(std::move(channels)) {
    for (size_t rank = 0; rank < members.size(); ++rank) {
      if (members[rank]) former_.push_back(static_cast<int>(rank));
    }
  }

  Status set(const std::string&, const std::string&) override { return no_keys(); }
  Result<std::string> get(const std::string&, int64_t) override { return no_keys(); }
  Result<int64_t> add(const std::string&, int64_t) override { return no_keys(); }
  std::string name() const override { return "survivors"; }
  bool is_private() const override { return true; }

  Result<std::string> broadcast(const std::string* value, TimeNs deadline) override {
    ++broadcasts_;
    if (!leads_) {
      Result<std::string> bytes = channels_[0]->receive_by(deadline);
      if (!bytes.ok()) return left(0, bytes.status());
      if (bytes->empty() || (*bytes)[0] != static_cast<char>(Frame::kMeet)) {
        return Status(StatusCode::kInvalidArgument, "the survivors' leader talks nonsense");
      }
      return bytes->substr(1);
    }
    for (const auto& channel : channels_) channel->send(frame(Frame::kMeet, *value));
    for (const auto& channel : channels_) {
      // Who has died meanwhile is named by the join.
      [[maybe_unused]] const Status sent = channel->flush(deadline);
    }
    return *value;
  }
  uint32_t count() const override { return old_epoch_ + broadcasts_; }
  int former_rank(int rank) const override {
    const auto place = static_cast<size_t>(rank);
    return place < former_.size() ? former_[place] : -1;
  }
  void watch(std::vector<pollfd>* fds) const override {
    for (const auto& channel : channels_) fds->push_back({channel->fd(), channel->events(), 0});
  }
  Status look() override {
    for (size_t place = 0; place < channels_.size(); ++place) {
      const Status status = channels_[place]->progress();
      if (!status.ok()) return left(static_cast<int>(place) + (leads_ ? 1 : 0), status);
    }
    return {};
  }

 private:
  Status left(int rank, const Status& status) const {
    const std::string who = bootstrap::rank_name(rank, former_rank(rank));
    if (status.code() == StatusCode::kTimeout) {
      return {status.code(), who + " did not call the survivors to their join in time"};
    }
    return {StatusCode::kPeerLost, who + " left during the join: " + status.message()};
  }

  static Status no_keys() {
    return {StatusCode::kUnsupported, "the survivors' meeting point holds no keys"};
  }

  uint32_t old_epoch_;
  bool leads_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<int> former_;  // by new rank
  uint32_t broadcasts_ = 0;
};

}  // namespace

Result<Survivors> muster_survivors(const OldGroup& old, std::vector<bool> gone, TimeNs deadline) {
  const auto self = static_cast<size_t>(old.rank);
  gone.resize(old.roll.cards.size(), false);
  if (gone[self]) {
    return Status(StatusCode::kPeerLost,
                  fmt::format("the other ranks have given rank {} up, since they did not hear from "
                              "it; it has to be started anew",
                              old.rank));
  }
  SocketDoors doors(old);
  control::Muster muster(&doors, old.rank, std::move(gone), now_ns(), deadline);
  while (!muster.step(now_ns())) CIUIC_RETURN_IF_ERROR(doors.progress(muster.next_step()));
  CIUIC_RETURN_IF_ERROR(muster.status());
  const std::vector<bool>& members = muster.members();
  Survivors survivors;
  survivors.size = static_cast<int>(std::count(members.begin(), members.end(), true));
  survivors.rank = static_cast<int>(std::count(members.begin(), members.begin() + old.rank, true));
  if (survivors.size == 1) return survivors;
  std::vector<std::unique_ptr<Channel>> channels;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    if (!members[rank] || rank == self) continue;
    channels.push_back(doors.take(static_cast<int>(rank)));
    if (survivors.rank > 0) break;  // to the leader alone
  }
  survivors.store = std::make_shared<MeetingPoint>(old.roll.epoch, survivors.rank == 0, members,
                                                   std::move(channels));
  return survivors;
}

}  // namespace ciuic
