// SPDX-License-Identifier: Apache-2.0
// tcp_acceptor.cc: accepting, proving, handing over.

#include "transport/tcp/tcp_acceptor.h"

#include <unistd.h>

#include <iterator>
#include <utility>

#include "drivers/posix/socket.h"
#include "transport/tcp/tcp_link.h"

namespace ciuic::transport::tcp {

Result<std::shared_ptr<TcpAcceptor>> TcpAcceptor::create(TcpAcceptorOptions options) {
  std::shared_ptr<TcpAcceptor> acceptor(new TcpAcceptor(std::move(options)));
  for (const posix::UniqueFd& listener : acceptor->options_.listeners) {
    CIUIC_RETURN_IF_ERROR(acceptor->options_.poller->add(listener.get(), &acceptor->ready_));
  }
  return acceptor;
}

TcpAcceptor::TcpAcceptor(TcpAcceptorOptions options)
    : options_(std::move(options)), pid_(getpid()) {}

TcpAcceptor::~TcpAcceptor() {
  if (getpid() != pid_) return;  // the poller's epoll is the parent's too
  for (const posix::UniqueFd& listener : options_.listeners) {
    options_.poller->remove(listener.get());
  }
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
    while (true) {
      Result<posix::UniqueFd> fd = posix::accept_from(listener.get());
      if (!fd.ok()) {
        // Most likely no descriptor is free at this moment: the connection waits in the queue.
        ready_.fetch_or(posix::kReadable, std::memory_order_acq_rel);
        break;
      }
      if (!fd->valid()) break;
      moved = true;
      if (pending_.size() == kMaxPending) turn_away(pending_.begin());
      const TimeNs until = deadline_after(now_ns(), kHandshakeMs);
      Pending& pending = pending_.emplace_back(
          std::move(*fd), security::Handshake::accepting(options_.secret, options_.identity),
          until);
      if (!options_.poller->add(pending.fd.get(), &pending.ready).ok()) {
        turn_away(std::prev(pending_.end()));
      }
    }
  }
  return moved;
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
