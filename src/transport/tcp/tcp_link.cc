// SPDX-License-Identifier: Apache-2.0
// tcp_link.cc: connecting when needed, then moving messages until one side closes.
//
// An end of the connection is an error only if the peer did not say goodbye before. What it sent
// last may still lie unread when sending fails, so reading goes on to the end before that is
// decided, and before the link says that its peer is lost.

#include "transport/tcp/tcp_link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <utility>

#include "base/assert.h"
#include "drivers/posix/socket.h"
#include "security/admission.h"

namespace ciuic::transport::tcp {

// So much of what the peer still sends is read away at closing. Unread bytes would make the kernel
// reset the connection, and the peer lose our last message.
static constexpr int kMaxDrains = 64;
static constexpr int kLookMs = 2;  // between two looks at what is not sent yet; no event tells

static TcpConnectorOptions connector_options(const TcpLinkOptions& options) {
  TcpConnectorOptions connector;
  connector.addresses = options.addresses;
  connector.secret = options.secret;
  connector.identity = options.identity;
  connector.identity.purpose = kTcpLinkPurpose;
  connector.identity.to = options.peer;
  connector.poller = options.poller;
  return connector;
}

TcpLink::TcpLink(TcpLinkOptions options)
    : options_(std::move(options)), connector_(connector_options(options_)), pid_(getpid()) {
  CIUIC_ASSERT(options_.peer != options_.identity.from);
  options_.acceptor->await(options_.peer, this);
}

TcpLink::~TcpLink() { close(); }

void TcpLink::fail(StatusCode code, const std::string& what) {
  if (status_.ok()) status_ = Status(code, options_.peer_name + " " + what);
  stage_ = Stage::kEnded;
  if (sender_) sender_->abandon();
}

bool TcpLink::connect() {
  bool moved = options_.acceptor->progress();  // may hand a connection to this link
  if (stage_ != Stage::kConnecting) return moved;
  Result<TcpConnection> connection = connector_.progress(now_ns());
  if (!connection.ok()) {
    connector_.drop();
    const std::string outside = security::while_unable_to_accept(
        fmt::format("rank {}", options_.identity.from), options_.acceptor->accepted());
    fail(connection.status().code(), connection.status().message() + outside);
    return true;
  }
  if (connection->fd.valid()) connected(std::move(*connection));
  return moved;
}

void TcpLink::connected(TcpConnection connection) {
  fd_ = std::move(connection.fd);
  tls_ = std::move(connection.tls);
  ready_.store(0, std::memory_order_relaxed);
  const Status added = options_.poller->add(fd_.get(), &ready_);
  if (!added.ok()) return fail(added.code(), "cannot be watched: " + added.message());
  sender_ = std::make_unique<TcpSender>(tls_.get());
  receiver_ = std::make_unique<TcpReceiver>(tls_.get());
  readable_ = writable_ = true;
  stage_ = Stage::kConnected;
}

// The byte may go later, with what follows, where TLS has it.
static bool tell_kept(TcpConnection* connection) {
  if (connection->tls == nullptr) {
    Result<size_t> told = posix::send_some(connection->fd.get(), &kKeptByte, 1);
    return told.ok() && *told == 1;
  }
  Result<bool> told = connection->tls->write(std::as_bytes(std::span(&kKeptByte, 1)));
  bool writable = true;
  return told.ok() && *told && connection->tls->flush(connection->fd.get(), &writable).ok();
}

bool TcpLink::adopt(TcpConnection* connection) {
  if (stage_ != Stage::kIdle && stage_ != Stage::kConnecting) return false;
  // Both have begun: the lower rank's connection stays, if it has come as far as the peer.
  const bool ours_first = options_.identity.from < options_.peer;
  if (stage_ == Stage::kConnecting && ours_first && connector_.reached_peer()) return false;
  if (!tell_kept(connection)) return false;
  connector_.drop();
  connected(std::move(*connection));
  return stage_ == Stage::kConnected;
}

bool TcpLink::can_send(size_t /*payload_bytes*/) {
  if (stage_ == Stage::kConnected) {
    return goodbye_ || (!write_ended_ && !sender_->full());
  }
  if (stage_ == Stage::kIdle) {
    const TimeNs now = now_ns();
    stage_ = Stage::kConnecting;
    connector_.begin(deadline_after(now, options_.connect_timeout_ms), now);
  }
  return false;
}

void TcpLink::send(const wire::Header& header, const std::byte* payload,
                   Publication* /*publication*/) {
  if (goodbye_) {
    // It closed in good order. Credits and the like are of no use any more; data is missed there.
    sender_->skip();
    if (header.type == wire::MessageType::kData) {
      fail(StatusCode::kPeerLost, "has closed its communicator");
    }
    return;
  }
  sender_->push(header, payload);
  if (writable_) transfer();
}

// Sends what waits. What did not go stays uncounted until the link has failed for it.
bool TcpLink::transfer() {
  Result<bool> moved = sender_->flush(fd_.get(), &writable_);
  if (moved.ok()) return *moved;
  write_ended_ = true;
  end_ = moved.status().message();
  if (tls_) ::shutdown(fd_.get(), SHUT_RDWR);  // it may have been TLS that failed, not the socket
  readable_ = true;                            // down to the end, which says why
  return true;
}

bool TcpLink::progress() {
  if (stage_ != Stage::kConnected) {
    if (stage_ == Stage::kEnded) return false;
    return connect();
  }
  if (ready_.load(std::memory_order_relaxed) != 0) {
    const uint32_t bits = ready_.exchange(0, std::memory_order_acq_rel);
    if ((bits & (posix::kReadable | posix::kHangUp)) != 0) readable_ = true;
    if ((bits & posix::kWritable) != 0) writable_ = true;
    if ((bits & posix::kHangUp) != 0) hung_up_ = true;
  }
  bool moved = false;
  if (!sender_->empty() && writable_ && !write_ended_) moved = transfer();
  if (readable_ && !receiver_->has_message()) moved = fill() || moved;
  if (read_ended_) look_at_end();
  return moved;
}

bool TcpLink::fill() {
  if (read_ended_) return false;
  Result<bool> moved = receiver_->fill(fd_.get(), &readable_);
  if (moved.ok()) {
    // A hang-up may have been told together with the last bytes, and is not told again.
    if (hung_up_) readable_ = true;
    return *moved;
  }
  read_ended_ = true;
  readable_ = false;
  if (moved.status().code() != StatusCode::kClosed) end_ = moved.status().message();
  return true;
}

// What had come whole can still be received; after that the end counts.
void TcpLink::look_at_end() {
  if (!status_.ok() || closed_ || receiver_->has_message()) return;
  if (goodbye_) return;
  std::string how = "closed the connection";
  if (receiver_->in_message()) how += " in the middle of a message";
  if (!end_.empty()) how = "is gone: " + end_;
  fail(StatusCode::kPeerLost, how);
}

bool TcpLink::receive(Arrival* arrival) {
  if (!receiver_ || closed_ || status_.code() == StatusCode::kMismatch) return false;
  Result<bool> came = receiver_->next(arrival);
  if (came.ok() && !*came && readable_ && fill()) came = receiver_->next(arrival);
  if (!came.ok()) {
    fail(StatusCode::kMismatch, "sent " + came.status().message());
    return false;
  }
  if (!*came) {
    if (read_ended_) look_at_end();
    return false;
  }
  if (arrival->header.type == wire::MessageType::kGoodbye) {
    goodbye_ = true;
    // It has gone, and what waits for it is missed by nobody, unless it is data.
    if (sender_->abandon()) fail(StatusCode::kPeerLost, "has closed its communicator");
  }
  return true;
}

void TcpLink::place(std::byte* destination) { receiver_->place(destination); }

void TcpLink::release(uint64_t token) {
  if (receiver_) receiver_->release(token);
}

// Data flows only over a connection that both ends keep: none can be on its way to this one.
void TcpLink::peer_gone(const Status& why) {
  if (stage_ != Stage::kIdle && stage_ != Stage::kConnecting) return;
  connector_.drop();
  status_ = why;
  stage_ = Stage::kEnded;
}

void TcpLink::close() {
  if (closed_) return;
  closed_ = true;
  options_.acceptor->forget(options_.peer, this);
  // The last link of a group takes the listeners along: who connects late is refused at once.
  const auto acceptor = std::move(options_.acceptor);
  if (getpid() != pid_) {
    // A forked child shares socket and epoll with its parent: it may only let go.
    connector_.forget();
    return;
  }
  connector_.drop();
  if (stage_ == Stage::kConnected && !goodbye_ && !write_ended_) {
    say_goodbye(acceptor->last_word_deadline(now_ns()));
  }
  if (sender_) sender_->abandon();
  stage_ = Stage::kEnded;
  if (!fd_) return;
  options_.poller->remove(fd_.get());
  ::shutdown(fd_.get(), SHUT_WR);  // also where a forked child holds it open
  if (drain() && !write_ended_) wait_until_sent(acceptor->last_word_deadline(now_ns()));
  fd_.reset();
}

// Linux resets a closed connection at the next byte that comes, and throws away what it has not
// sent; of what the peer has, and has not read yet, nothing is lost by that.
void TcpLink::wait_until_sent(TimeNs deadline) {
  while (posix::unsent_bytes(fd_.get()) > 0) {
    const TimeNs now = now_ns();
    if (now >= deadline) return;
    pollfd entry{fd_.get(), POLLIN, 0};
    ::poll(&entry, 1, posix::poll_timeout_ms(deadline, now, kLookMs));
    if (!drain()) return;  // nothing comes any more
  }
}

// Reads away what came. False: the connection is gone.
bool TcpLink::drain() {
  char waste[4096];
  for (int i = 0; i < kMaxDrains; ++i) {
    Result<size_t> count = posix::receive_some(fd_.get(), waste, sizeof waste);
    if (!count.ok()) return false;
    if (*count == 0) break;
  }
  return true;
}

// The last words, and what waits before them: without them the peer would take this for a death.
void TcpLink::say_goodbye(TimeNs deadline) {
  wire::Header goodbye;
  goodbye.type = wire::MessageType::kGoodbye;
  goodbye.epoch = options_.identity.epoch;
  goodbye.group = options_.identity.group;
  for (bool said = false, closed = tls_ == nullptr; !write_ended_;) {
    if (!said && !sender_->full()) {
      sender_->push(goodbye, nullptr);
      said = true;
    }
    if (writable_) transfer();
    if (said && sender_->empty()) {
      if (closed) return;
      tls_->close();
      closed = true;
    } else if (!write_ended_ && !wait_to_write(deadline)) {
      return;
    }
  }
}

// The peer may be doing the same: unless both read, neither can write.
bool TcpLink::wait_to_write(TimeNs deadline) {
  while (!writable_) {
    pollfd entry{fd_.get(), POLLIN | POLLOUT, 0};
    const TimeNs now = now_ns();
    if (hung_up_ || now >= deadline) return false;
    const int count = ::poll(&entry, 1, posix::poll_timeout_ms(deadline, now));
    if (count < 0 && errno != EINTR) return false;
    if (count <= 0) continue;
    if ((entry.revents & POLLIN) != 0 && !drain()) return false;
    if ((entry.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) return false;
    if ((entry.revents & POLLOUT) != 0) writable_ = true;
  }
  return true;
}

size_t TcpLink::buffer_bytes() const {
  const size_t encrypted = tls_ ? tls_->buffer_bytes() + security::kTlsRecordBytes : 0;
  return sizeof *this + (sender_ ? sizeof *sender_ : 0) +
         (receiver_ ? TcpReceiver::buffer_bytes() : 0) + encrypted;
}

}  // namespace ciuic::transport::tcp
