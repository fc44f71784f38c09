// SPDX-License-Identifier: Apache-2.0
// dial.cc: a channel for each address, until one is proven or all have failed.

#include "bootstrap/dial.h"

#include <fmt/format.h>

#include <algorithm>

namespace ciuic::bootstrap {

static constexpr int64_t kLeastPauseMs = 10;
static constexpr int64_t kMostPauseMs = 250;

Dial::Dial(const std::vector<posix::Address>& addresses, const std::string& secret,
           const security::Identity& identity, size_t max_frame_bytes)
    : secret_(secret), identity_(identity), max_frame_bytes_(max_frame_bytes) {
  for (const posix::Address& address : addresses) {
    attempts_.emplace_back().address = address;
    begin(&attempts_.back());
  }
}

void Dial::begin(Attempt* attempt) {
  attempt->again_at = kNever;
  Result<Channel> channel = Channel::connect(
      attempt->address, security::Handshake::connecting(secret_, identity_), max_frame_bytes_);
  if (channel.ok()) {
    attempt->channel.emplace(std::move(*channel));
  } else {
    attempt->status = channel.status();
  }
}

void Dial::add_to(std::vector<pollfd>* fds) const {
  for (const Attempt& attempt : attempts_) {
    if (attempt.channel && !attempt.proven()) {
      fds->push_back({attempt.channel->fd(), attempt.channel->events(), 0});
    }
  }
}

void Dial::progress() {
  const TimeNs now = now_ns();
  for (Attempt& attempt : attempts_) {
    if (now >= attempt.again_at) begin(&attempt);
    if (!attempt.channel || attempt.proven()) continue;
    const Status status = attempt.channel->progress();
    if (status.ok()) continue;
    // Proven and lost at once: whoever takes the channel meets the loss.
    if (attempt.proven()) continue;
    attempt.status = status;
    attempt.channel.reset();
    if (status.code() != StatusCode::kPeerLost || attempt.lost >= most_lost_) continue;
    const int64_t pause_ms = std::min(kLeastPauseMs * ++attempt.lost, kMostPauseMs);
    attempt.again_at = deadline_after(now, pause_ms);
  }
}

bool Dial::any_proven() const {
  return std::any_of(attempts_.begin(), attempts_.end(),
                     [](const Attempt& attempt) { return attempt.proven(); });
}

bool Dial::settled() const {
  return std::all_of(attempts_.begin(), attempts_.end(), [](const Attempt& attempt) {
    return attempt.proven() || (!attempt.channel && attempt.again_at == kNever);
  });
}

TimeNs Dial::next_try() const {
  TimeNs next = kNever;
  for (const Attempt& attempt : attempts_) next = std::min(next, attempt.again_at);
  return next;
}

Channel Dial::take() {
  const auto best = std::find_if(attempts_.begin(), attempts_.end(),
                                 [](const Attempt& attempt) { return attempt.proven(); });
  return std::move(*best->channel);
}

std::string Dial::failures() const {
  std::string text;
  for (const Attempt& attempt : attempts_) {
    if (attempt.proven()) continue;
    if (!text.empty()) text += "; ";
    text += fmt::format("{}: {}", attempt.address.format(),
                        attempt.channel ? "no answer in time" : attempt.status.message());
  }
  return text.empty() ? "it has told no address that other machines could try" : text;
}

Result<Channel> dial(const std::string& who, const std::vector<posix::Address>& addresses,
                     const std::string& secret, const security::Identity& identity,
                     size_t max_frame_bytes, TimeNs deadline) {
  Dial attempts(addresses, secret, identity, max_frame_bytes);
  while (!attempts.any_proven() && !attempts.settled() && now_ns() < deadline) {
    std::vector<pollfd> fds;
    attempts.add_to(&fds);
    CIUIC_RETURN_IF_ERROR(wait_for_any(&fds, deadline));
    attempts.progress();
  }
  if (attempts.any_proven()) return attempts.take();
  StatusCode code = attempts.settled() ? StatusCode::kPeerLost : StatusCode::kTimeout;
  for (const Dial::Attempt& attempt : attempts.attempts()) {
    const StatusCode own = attempt.status.code();
    const bool telling = own == StatusCode::kPermission || own == StatusCode::kMismatch ||
                         own == StatusCode::kUnavailable;
    if (telling && !attempt.channel) code = own;
  }
  return Status(code, fmt::format("cannot reach {}: {}", who, attempts.failures()));
}

}  // namespace ciuic::bootstrap
