// SPDX-License-Identifier: Apache-2.0
// tcp_connector.cc: one attempt after the other.

#include "transport/tcp/tcp_connector.h"

#include <algorithm>
#include <utility>

#include "drivers/posix/socket.h"
#include "drivers/posix/timer_fd.h"

namespace ciuic::transport::tcp {

// After a round in which the peer was there but kept no connection.
static constexpr TimeNs kRetryNs = 5'000'000;

// An address that does not answer gets its share of the time left, and no less than this.
static constexpr TimeNs kLeastAttemptNs = 1'000'000'000;

// Each round with a busy peer takes twice as long as the one before it, up to this: every attempt
// that is given up stays in the peer's queue until the peer looks, and would fill it.
static constexpr TimeNs kLongRoundNs = 3'600'000'000'000;

// What is told of one round at most; it repeats itself.
static constexpr size_t kMaxFailureText = 1000;

void TcpConnector::begin(TimeNs deadline, TimeNs now) {
  drop();
  deadline_ = deadline;
  round_ns_ = deadline - now;
  is_busy_ = had_grace_ = false;
  next_address_ = 0;
  try_again_ = options_.addresses.empty();  // the peer may still connect to us
  failures_.clear();
  retry_at_ = now;
  start_attempt(now);
}

void TcpConnector::end_attempt() {
  if (fd_) options_.poller->remove(fd_.get());
  fd_.reset();
  tls_.reset();
  stage_ = Stage::kIdle;
}

void TcpConnector::drop() {
  end_attempt();
  if (timer_) options_.poller->remove(timer_.get());
  timer_.reset();
}

void TcpConnector::forget() {
  fd_.reset();
  timer_.reset();
  stage_ = Stage::kIdle;
}

// Without a timer, where no descriptor is free, a sleeper wakes later, for another reason.
void TcpConnector::set_timer(TimeNs at) {
  if (!timer_) {
    Result<posix::UniqueFd> timer = posix::create_timer();
    if (!timer.ok() || !options_.poller->add(timer->get(), &ready_).ok()) return;
    timer_ = std::move(*timer);
  }
  posix::set_timer(timer_.get(), at);
}

void TcpConnector::attempt_failed(const std::string& why) {
  end_attempt();
  if (failures_.size() > kMaxFailureText) return;
  if (!failures_.empty()) failures_ += "; ";
  failures_ += why;
}

void TcpConnector::start_attempt(TimeNs now) {
  while (next_address_ < options_.addresses.size()) {
    const posix::Address& address = options_.addresses[next_address_++];
    Result<posix::UniqueFd> fd = posix::start_connect(address);
    if (!fd.ok()) {
      attempt_failed(fd.status().message());
      continue;
    }
    fd_ = std::move(*fd);
    ready_.store(0, std::memory_order_relaxed);
    const Status added = options_.poller->add(fd_.get(), &ready_);
    if (!added.ok()) {
      attempt_failed(added.message());
      continue;
    }
    stage_ = Stage::kConnecting;
    const auto left = static_cast<TimeNs>(options_.addresses.size() - next_address_ + 1);
    // After an address that is only busy the others get their time, too.
    const bool is_over = is_busy_ || now >= deadline_;
    const TimeNs time = std::max(deadline_ - now, is_over ? kLeastAttemptNs : 0);
    attempt_deadline_ = now + std::min(std::max(time / left, kLeastAttemptNs), time);
    set_timer(attempt_deadline_);
    return;
  }
}

Status TcpConnector::verdict() const {
  std::string text = "cannot be reached";
  if (!failures_.empty()) text += ": " + failures_;
  return Status(StatusCode::kPeerLost, std::move(text));
}

Result<bool> TcpConnector::prove(const posix::Address& address) {
  Result<bool> done = handshake_->progress(fd_.get());
  if (done.ok()) {
    if (*done) tls_ = handshake_->take_tls();
    return done;
  }
  if (done.status().code() == StatusCode::kPeerLost) try_again_ = true;
  const bool stranger = done.status().code() == StatusCode::kInvalidArgument;
  const StatusCode code = stranger ? StatusCode::kPeerLost : done.status().code();
  return Status(code, address.format() + ": " + done.status().message());
}

Result<size_t> TcpConnector::receive_kept(char* kept) {
  if (tls_ == nullptr) return posix::receive_some(fd_.get(), kept, 1);
  const iovec part = {kept, 1};
  bool readable = true;
  return tls_->receive(fd_.get(), {&part, 1}, &readable);
}

// True: connected, proven and kept. An error of code kPeerLost ends only this attempt.
Result<bool> TcpConnector::advance() {
  const posix::Address& address = options_.addresses[next_address_ - 1];
  if (stage_ == Stage::kConnecting) {
    if ((ready_.load(std::memory_order_acquire) & (posix::kWritable | posix::kHangUp)) == 0) {
      return false;
    }
    const Status connected = posix::connect_result(fd_.get(), address);
    if (!connected.ok()) return Status(StatusCode::kPeerLost, connected.message());
    stage_ = Stage::kProving;
    handshake_.emplace(security::Handshake::connecting(options_.secret, options_.identity));
  }
  if (stage_ == Stage::kProving) {
    Result<bool> done = prove(address);
    if (!done.ok() || !*done) return done;
    stage_ = Stage::kWaiting;
  }
  char kept = 0;
  Result<size_t> count = receive_kept(&kept);
  if (!count.ok() || (*count == 1 && kept != kKeptByte)) {
    try_again_ = true;
    return Status(StatusCode::kPeerLost,
                  address.format() + ": the peer did not keep the connection");
  }
  return *count == 1;
}

// Somebody took a connection and has not proven itself yet: a peer that does something else, or is
// stopped, or a service that is none of ours. Which of them, time does not tell.
void TcpConnector::begin_longer_round(TimeNs now) {
  if (round_ns_ < kLongRoundNs) round_ns_ = std::max(2 * round_ns_, kLeastAttemptNs);
  deadline_ = now + round_ns_;
  is_busy_ = had_grace_ = false;
}

bool TcpConnector::is_too_late(TimeNs now) {
  if (now < deadline_ || is_busy_) return false;
  if (!try_again_ || had_grace_) return true;
  // This process itself may have slept, and the peer, which hung up meanwhile, be connecting to it.
  had_grace_ = true;
  deadline_ = now + kLeastAttemptNs;
  return false;
}

Result<TcpConnection> TcpConnector::progress(TimeNs now) {
  if (stage_ == Stage::kIdle) {
    if (now < retry_at_) return TcpConnection();
    if (next_address_ == 0) failures_.clear();  // the last round's are told
    start_attempt(now);
  }
  while (stage_ != Stage::kIdle) {
    Result<bool> done = advance();
    if (done.ok() && *done) {
      options_.poller->remove(fd_.get());
      TcpConnection connection{std::move(fd_), std::move(tls_)};
      drop();
      return connection;
    }
    if (done.ok() && now < attempt_deadline_) return TcpConnection();
    if (done.ok()) {
      is_busy_ = is_busy_ || reached_peer();
      attempt_failed("connect to " + options_.addresses[next_address_ - 1].format() +
                     ": no answer in time");
    } else if (done.status().code() == StatusCode::kPeerLost) {
      attempt_failed(done.status().message());
    } else {
      return done.status();
    }
    if (is_too_late(now)) return verdict();
    start_attempt(now);
  }
  if (is_busy_) {
    begin_longer_round(now);
  } else if (!try_again_ || is_too_late(now)) {
    return verdict();
  }
  next_address_ = 0;
  try_again_ = options_.addresses.empty();
  retry_at_ = now + kRetryNs;
  set_timer(std::min(retry_at_, deadline_));
  return TcpConnection();
}

}  // namespace ciuic::transport::tcp
