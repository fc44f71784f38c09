// SPDX-License-Identifier: Apache-2.0
// exchange.cc: how rank 0 calls the others together, and how they come.

#include "bootstrap/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/hash.h"
#include "bootstrap/dial.h"
#include "bootstrap/fenced_store.h"
#include "bootstrap/invitation.h"
#include "bootstrap/reception.h"
#include "drivers/posix/socket.h"
#include "security/handshake.h"
#include "security/tls_context.h"

namespace ciuic::bootstrap {

// How long a rank tries an invitation before it looks whether there is a newer one.
static constexpr int64_t kLeastTryMs = 1'000;
static constexpr int64_t kMostTryMs = 8'000;
// How long it waits for a newer one before it tries the open one again.
static constexpr int64_t kLeastWaitMs = 100;
static constexpr int64_t kMostWaitMs = 2'000;
// How long one waits for an invitation that is there, unless it is withdrawn at this moment.
static constexpr int64_t kReadMs = 200;
// How long rank 0 waits for the invitation of another rank 0 that has claimed the incarnation.
static constexpr int64_t kClaimMs = 3'000;

uint32_t group_id(const std::string& group_name) { return fnv1a_32(group_name); }

// Before anybody is called: a rank that cannot have what it was told to use says so.
static Status check_tls(const ExchangeOptions& options) {
  return options.tls ? security::TlsContext::instance().status() : Status();
}

static Result<std::string> group_secret(const Invitation& invitation,
                                        const ExchangeOptions& options) {
  if (options.shared_secret.empty()) return invitation.secret;
  return security::hmac_sha256(options.shared_secret, "group" + invitation.secret);
}

// What came of trying an invitation.
struct Visit {
  bool settled = false;  // the join has come to an end, good or bad; else the next one is tried
  Result<std::unique_ptr<Assembly>> result = Status();
  std::string why;  // not settled
};

static Visit not_settled(const Status& status) { return {false, status, status.message()}; }

static int former_rank(const FencedStore* fence, int rank) {
  return fence == nullptr ? -1 : fence->former_rank(rank);
}

// Hands over the card at rank 0's and waits for its answer.
static Result<std::unique_ptr<Assembly>> present_card(Channel channel, const Card& mine, Roll roll,
                                                      TimeNs deadline, FencedStore* fence) {
  const TimeNs now = now_ns();
  const int64_t can_wait_ms = left_ms(answer_by(deadline, now), now);
  channel.send(encode_card_frame(can_wait_ms, mine));
  Result<std::string> frame = channel.receive_by(deadline);
  if (!frame.ok()) {
    const bool late = frame.status().code() == StatusCode::kTimeout;
    return Status(late ? StatusCode::kTimeout : StatusCode::kPeerLost,
                  late ? "rank 0 is there, but other ranks did not come to the join in time"
                       : rank_name(0, former_rank(fence, 0)) +
                             " left during the join: " + frame.status().message());
  }
  if (frame_of(*frame) == Frame::kFailure) return decode_failure(*frame);
  CIUIC_RETURN_IF_ERROR(decode_roll(*frame, &roll));
  const auto place = static_cast<size_t>(mine.rank);
  if (roll.cards.size() != static_cast<size_t>(mine.size) || roll.cards[place] != mine) {
    return Status(StatusCode::kInvalidArgument, "rank 0's roll does not hold this rank's card");
  }
  for (Card& card : roll.cards) card.former_rank = former_rank(fence, card.rank);
  std::vector<std::unique_ptr<Channel>> channels;
  channels.push_back(std::make_unique<Channel>(std::move(channel)));
  return std::make_unique<Assembly>(mine.rank, std::move(roll), std::move(channels));
}

static Visit visit(const Invitation& invitation, const Card& mine, const ExchangeOptions& options,
                   int64_t try_ms, FencedStore* fence = nullptr) {
  Result<std::string> secret = group_secret(invitation, options);
  if (!secret.ok()) return {true, secret.status(), ""};
  const Status able = check_tls(options);
  if (!able.ok()) return {true, able, ""};
  security::Identity identity;
  identity.tls = options.tls ? security::UseTls::kYes : security::UseTls::kNo;
  identity.job = invitation.job;
  identity.epoch = invitation.epoch;
  identity.group = group_id(options.group_name);
  identity.purpose = kJoinPurpose;
  identity.from = mine.rank;
  identity.to = 0;
  const TimeNs until = std::min(options.deadline, deadline_after(now_ns(), try_ms));
  Result<Channel> channel = dial(
      fmt::format("{} (host {})", rank_name(0, former_rank(fence, 0)), invitation.host_name),
      reachable(mine.machine_id, invitation.machine_id, invitation.addresses, invitation.loopback),
      *secret, identity, kMaxFrameToRank, until);
  if (!channel.ok()) {
    const StatusCode code = channel.status().code();
    // Another program may have the port by now, or an incarnation of another group; but one that
    // says it is of this very job and does not know the secret is our rank 0 with another one.
    const bool ours =
        code == StatusCode::kPermission &&
        channel.status().message().find("of job " + invitation.job + ", ") != std::string::npos;
    const bool final = ours || code == StatusCode::kUnavailable || code == StatusCode::kMismatch;
    if (final) return {true, channel.status(), ""};
    return not_settled(channel.status());
  }
  Result<std::string> welcome = channel->receive_by(until);
  if (!welcome.ok()) return not_settled(welcome.status());
  if (frame_of(*welcome) == Frame::kFailure) return {true, decode_failure(*welcome), ""};
  Roll roll;
  roll.group = identity.group;
  roll.job = invitation.job;
  roll.secret = *secret;
  roll.tls = options.tls;
  return {true, present_card(std::move(*channel), mine, std::move(roll), options.deadline, fence),
          ""};
}

// Rank 0's listeners, at the addresses of its card but at ports of their own.
static Result<std::vector<posix::UniqueFd>> listen_for(const Card& mine, const Listening& listening,
                                                       Invitation* invitation) {
  std::vector<posix::UniqueFd> listeners;
  std::vector<std::string> own;
  std::vector<std::string> loopback;
  for (const posix::Address& address : mine.addresses) {
    if (address.text != listening.advertised.text) own.push_back(address.text);
  }
  for (const posix::Address& address : mine.loopback) loopback.push_back(address.text);
  const Status to_others = listen_at_all(own, listening, &listeners, &invitation->addresses);
  const Status to_own = listen_at_all(loopback, listening, &listeners, &invitation->loopback);
  if (listeners.empty() && to_others.ok() && to_own.ok()) {
    return Status(StatusCode::kSystem, "rank 0 has no address to listen at");
  }
  if (listeners.empty()) return to_own.ok() ? to_others : to_own;
  advertise(listening, &invitation->addresses);
  return listeners;
}

static Result<std::unique_ptr<Assembly>> receive_all_ranks(std::vector<posix::UniqueFd> listeners,
                                                           const Invitation& invitation,
                                                           const Card& mine,
                                                           const ExchangeOptions& options,
                                                           FencedStore* fence = nullptr) {
  Roll roll;
  roll.epoch = invitation.epoch;
  roll.group = group_id(options.group_name);
  roll.job = invitation.job;
  roll.tuning = options.tuning;
  roll.tls = options.tls;
  Result<std::string> secret = group_secret(invitation, options);
  if (!secret.ok()) return secret.status();
  roll.secret = *secret;
  return Reception(std::move(listeners), mine, std::move(roll), options.deadline, fence).run();
}

static Result<Invitation> prepare(const Card& mine, const ExchangeOptions& options,
                                  std::vector<posix::UniqueFd>* listeners) {
  // Before anybody is called: without OpenSSL no one could prove anything.
  Result<std::string> probe = security::hmac_sha256("probe", "");
  if (!probe.ok()) return probe.status();
  CIUIC_RETURN_IF_ERROR(check_tls(options));
  Result<Invitation> invitation = new_invitation();
  if (!invitation.ok()) return invitation;
  invitation->host_name = mine.host_name;
  invitation->machine_id = mine.machine_id;
  Result<std::vector<posix::UniqueFd>> fds = listen_for(mine, options.listening, &*invitation);
  if (!fds.ok()) return fds.status();
  *listeners = std::move(*fds);
  return invitation;
}

static Result<std::unique_ptr<Assembly>> join_as_rank_0(Store& store, const Card& mine,
                                                        const ExchangeOptions& options) {
  MeetingPlace place(&store, options.group_name);
  Result<MeetingPlace::State> before = place.look();
  if (!before.ok()) return before.status();
  if (before->open != 0) {  // another rank 0 that is there, or one that died
    Result<Invitation> other = place.read(before->open, kReadMs);
    Visit met = other.ok() ? visit(*other, mine, options, kLeastTryMs) : not_settled(Status());
    if (met.settled) return std::move(met.result);
  }
  Result<bool> first = place.claim(before->next);
  if (!first.ok()) return first.status();
  if (!*first) {  // another rank 0 does the same just now, or died doing it
    Result<Invitation> other = place.read(before->next, kClaimMs);
    Visit met = other.ok() ? visit(*other, mine, options, kLeastTryMs) : not_settled(Status());
    if (met.settled) return std::move(met.result);
  }
  std::vector<posix::UniqueFd> listeners;
  Result<Invitation> invitation = prepare(mine, options, &listeners);
  if (!invitation.ok()) return invitation.status();
  invitation->epoch = before->next;
  CIUIC_RETURN_IF_ERROR(place.open(*invitation, *before));
  Result<std::unique_ptr<Assembly>> assembly =
      receive_all_ranks(std::move(listeners), *invitation, mine, options);
  place.close(invitation->epoch);
  return assembly;
}

static Result<std::unique_ptr<Assembly>> join_rank_0(Store& store, const Card& mine,
                                                     const ExchangeOptions& options) {
  MeetingPlace place(&store, options.group_name);
  const TimeNs start = now_ns();
  int64_t wait_ms = kLeastWaitMs;
  int64_t try_ms = kLeastTryMs;
  std::string last;
  while (now_ns() < options.deadline) {
    Result<MeetingPlace::State> state = place.look();
    if (!state.ok()) return state.status();
    const TimeNs left = left_ms(options.deadline, now_ns());
    Result<Invitation> invitation = Status(StatusCode::kTimeout, "no incarnation is open");
    if (state->open != 0) invitation = place.read(state->open, std::min(kReadMs, left));
    for (bool newer = false;; newer = true) {
      if (invitation.ok()) {
        Visit visited = visit(*invitation, mine, options, try_ms);
        if (visited.settled) return std::move(visited.result);
        last = visited.why;
        try_ms = std::min(try_ms * 2, kMostTryMs);
      } else if (invitation.status().code() != StatusCode::kTimeout) {
        return invitation.status();
      }
      if (newer) break;
      const int64_t wait = std::min(wait_ms, left_ms(options.deadline, now_ns()));
      invitation = place.read(state->next, wait);
      wait_ms = std::min(wait_ms * 2, kMostWaitMs);
    }
  }
  std::string text = fmt::format(
      "rank 0 did not come to the join of group \"{}\" in {} ms; rank {} waited for it at store {}",
      options.group_name, (now_ns() - start) / 1'000'000, mine.rank, store.name());
  if (!last.empty()) text += "; an invitation was there, but " + last;
  return Status(StatusCode::kTimeout, text);
}

static Result<std::unique_ptr<Assembly>> stay_alone(const Card& mine,
                                                    const ExchangeOptions& options) {
  Result<Invitation> identity = new_invitation();
  if (!identity.ok()) return identity.status();
  Roll roll;
  roll.cards = {mine};
  roll.epoch = 1;
  roll.group = group_id(options.group_name);
  roll.job = identity->job;
  roll.secret = identity->secret;
  roll.tuning = options.tuning;
  return std::make_unique<Assembly>(0, std::move(roll), std::vector<std::unique_ptr<Channel>>(1));
}

// All ranks meet at one fence, so the invitation that comes out of it is the right one.
static Result<std::unique_ptr<Assembly>> join_by_fence(FencedStore& store, const Card& mine,
                                                       const ExchangeOptions& options) {
  if (mine.rank == 0) {
    std::vector<posix::UniqueFd> listeners;
    Result<Invitation> invitation = prepare(mine, options, &listeners);
    if (!invitation.ok()) {  // said to the others too, who wait at the fence
      const Status failure = invitation.status();
      invitation = Invitation();
      invitation->failure = failure;
    }
    invitation->epoch = store.count() + 1;
    const std::string bytes = encode(*invitation);
    Result<std::string> met = store.broadcast(&bytes, options.deadline);
    if (!met.ok()) return met.status();
    if (!invitation->failure.ok()) return invitation->failure;
    return receive_all_ranks(std::move(listeners), *invitation, mine, options, &store);
  }
  Result<std::string> bytes = store.broadcast(nullptr, options.deadline);
  if (!bytes.ok()) return bytes.status();
  Result<Invitation> invitation = decode_invitation(*bytes);
  if (!invitation.ok()) return invitation.status();
  if (!invitation->failure.ok()) {
    return Status(invitation->failure.code(), "rank 0: " + invitation->failure.message());
  }
  Visit visited;
  do {
    visited = visit(*invitation, mine, options, kMostTryMs, &store);
    if (visited.settled) return std::move(visited.result);
    // Refused at once: it will not become better by asking as fast as one can, unless rank 0 has
    // gone since the ranks met.
    std::vector<pollfd> fds;
    store.watch(&fds);
    const TimeNs until = std::min(options.deadline, deadline_after(now_ns(), kLeastWaitMs));
    CIUIC_RETURN_IF_ERROR(wait_for_any(&fds, until));
    CIUIC_RETURN_IF_ERROR(store.look());
  } while (now_ns() < options.deadline);
  return Status(StatusCode::kTimeout, visited.why);
}

Result<std::unique_ptr<Assembly>> exchange_cards(Store* store, const Card& mine,
                                                 const ExchangeOptions& options) {
  if (mine.size < 1 || mine.size > kMaxRanks || mine.rank < 0 || mine.rank >= mine.size) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("rank {} is outside the {} ranks", mine.rank, mine.size));
  }
  if (options.tuning.size() > kMaxTuningBytes) {
    return Status(StatusCode::kInvalidArgument, "the tuning table is too large");
  }
  if (mine.size == 1) return stay_alone(mine, options);
  if (store == nullptr) return Status(StatusCode::kInvalidArgument, "no store to meet in");
  if (auto* fenced = dynamic_cast<FencedStore*>(store))
    return join_by_fence(*fenced, mine, options);
  return mine.rank == 0 ? join_as_rank_0(*store, mine, options)
                        : join_rank_0(*store, mine, options);
}

}  // namespace ciuic::bootstrap
