// SPDX-License-Identifier: Apache-2.0
// tcp_acceptor.cc: accepting, proving, handing over.

#include "transport/tcp/tcp_acceptor.h"

#include <unistd.h>

#include <iterator>
#include <utility>

#include "base/log.h"
#include "drivers/posix/socket.h"
#include "drivers/posix/timer_fd.h"
#include "security/admission.h"
#include "transport/tcp/tcp_link.h"

namespace ciuic::transport::tcp {

Result<std::shared_ptr<TcpAcceptor>> TcpAcceptor::create(TcpAcceptorOptions options) {
  std::shared_ptr<TcpAcceptor> acceptor(new TcpAcceptor(std::move(options)));
  for (const posix::UniqueFd& listener : acceptor->options_.listeners) {
    CIUIC_RETURN_IF_ERROR(acceptor->options_.poller->add(listener.get(), &acceptor->ready_));
  }
  // Made now: when it is needed, no descriptor is left.
  Result<posix::UniqueFd> timer = posix::create_timer();
  if (!timer.ok()) return timer.status();
  CIUIC_RETURN_IF_ERROR(acceptor->options_.poller->add(timer->get(), &acceptor->ready_));
  acceptor->timer_ = std::move(*timer);
  return acceptor;
}

TcpAcceptor::TcpAcceptor(TcpAcceptorOptions options)
    : options_(std::move(options)), pid_(getpid()) {}

TcpAcceptor::~TcpAcceptor() {
  if (getpid() != pid_) return;  // the poller's epoll is the parent's too
  for (const posix::UniqueFd& listener : options_.listeners) {
    options_.poller->remove(listener.get());
  }
  if (timer_) options_.poller->remove(timer_.get());
  for (const Pending& pending : pending_) options_.poller->remove(pending.fd.get());
}

bool TcpAcceptor::progress() {
  bool moved = false;
  if (ready_.load(std::memory_order_relaxed) != 0) moved = accept_waiting();
  if (!pending_.empty()) moved = prove_pending() || moved;
  return moved;
}

bool TcpAcceptor::accept_waiting() {
  bool moved = false;
  ready_.exchange(0, std::memory_order_acq_rel);
  for (const posix::UniqueFd& listener : options_.listeners) {
    moved = accept_some(listener.get()) || moved;
  }
  return moved;
}

// Not all at once: however fast they come, the step has more to do.
bool TcpAcceptor::accept_some(int listener) {
  const size_t most = security::most_unproven(kMaxPending);
  bool moved = false;
  for (size_t taken = 0; taken < security::accepts_at_once(most); ++taken) {
    Result<posix::UniqueFd> fd = posix::accept_from(listener);
    if (!fd.ok() && make_room()) continue;
    if (!fd.ok()) {
      accept_later(fd.status());
      return moved;
    }
    accepted_ = Status();
    if (!fd->valid()) return moved;
    moved = true;
    if (pending_.size() >= most) make_room();
    const TimeNs until = deadline_after(now_ns(), kHandshakeMs);
    Pending& pending = pending_.emplace_back(
        std::move(*fd), security::Handshake::accepting(options_.secret, options_.identity), until);
    if (!options_.poller->add(pending.fd.get(), &pending.ready).ok()) {
      turn_away(std::prev(pending_.end()));
    }
  }
  // More may wait, of which the poller has told already. It is asked first what those who are in
  // have said meanwhile: else a flood would push them out unheard.
  posix::set_timer(timer_.get(), now_ns());
  return true;
}

// No descriptor is free, most likely, and nobody is here who could make room.
void TcpAcceptor::accept_later(const Status& why) {
  if (!std::exchange(has_warned_, true)) {
    log_warn("rank {} cannot accept connections that wait: {}", options_.identity.to,
             why.message());
  }
  accepted_ = why;
  posix::set_timer(timer_.get(), deadline_after(now_ns(), kAcceptPauseMs));
}

// False: nobody can go.
bool TcpAcceptor::make_room() {
  const auto pending = security::first_to_go(pending_);
  if (pending == pending_.end()) return false;
  turn_away(pending);
  return true;
}

void TcpAcceptor::turn_away(std::list<Pending>::iterator pending) {
  options_.poller->remove(pending->fd.get());
  pending_.erase(pending);
  ++strangers_;
}

bool TcpAcceptor::prove_pending() {
  bool moved = false;
  const TimeNs now = now_ns();
  for (auto next = pending_.begin(); next != pending_.end();) {
    const auto pending = next++;
    if (pending->ready.load(std::memory_order_relaxed) != 0) {
      pending->ready.exchange(0, std::memory_order_acq_rel);
      moved = true;
      Result<bool> done = pending->handshake.progress(pending->fd.get());
      if (!done.ok()) {
        turn_away(pending);
        continue;
      }
      if (*done) {
        hand_over(pending);
        continue;
      }
    }
    if (now >= pending->deadline) turn_away(pending);
  }
  return moved;
}

void TcpAcceptor::hand_over(std::list<Pending>::iterator pending) {
  const security::Identity& peer = pending->handshake.peer();
  const auto link = links_.find(peer.from);
  if (peer.purpose != kTcpLinkPurpose || link == links_.end()) return turn_away(pending);
  options_.poller->remove(pending->fd.get());
  TcpConnection connection{std::move(pending->fd), pending->handshake.take_tls()};
  pending_.erase(pending);
  if (!link->second->adopt(&connection)) ++strangers_;
}

}  // namespace ciuic::transport::tcp
