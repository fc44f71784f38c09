// SPDX-License-Identifier: Apache-2.0
// tcp_link.cc: connecting when needed, then moving messages until one side closes.
//
// An end of the connection is an error only if the peer did not say goodbye before. What it sent
// last may still lie unread when sending fails, so reading goes on to the end before that is
// decided, and before the link says that its peer is lost.

#include "transport/tcp/tcp_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "base/assert.h"
#include "drivers/posix/socket.h"

namespace ciuic::transport::tcp {

// So much of what the peer still sends is read away at closing. Unread bytes would make the kernel
// reset the connection, and the peer lose our last message.
static constexpr int kMaxDrains = 64;

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
  drop_queue();
}

void TcpLink::drop_queue() {
  if (sender_ && sender_->abandon()) lost_data_ = true;
}

bool TcpLink::connect() {
  bool moved = options_.acceptor->progress();  // may hand a connection to this link
  if (stage_ != Stage::kConnecting) return moved;
  Result<posix::UniqueFd> fd = connector_.progress(now_ns());
  if (!fd.ok()) {
    connector_.drop();
    fail(fd.status().code(), fd.status().message());
    return true;
  }
  if (fd->valid()) connected(std::move(*fd));
  return moved;
}

void TcpLink::connected(posix::UniqueFd fd) {
  fd_ = std::move(fd);
  ready_.store(0, std::memory_order_relaxed);
  const Status added = options_.poller->add(fd_.get(), &ready_);
  if (!added.ok()) return fail(added.code(), "cannot be watched: " + added.message());
  sender_ = std::make_unique<TcpSender>();
  receiver_ = std::make_unique<TcpReceiver>();
  readable_ = writable_ = true;
  stage_ = Stage::kConnected;
}

bool TcpLink::adopt(posix::UniqueFd* fd) {
  if (stage_ != Stage::kIdle && stage_ != Stage::kConnecting) return false;
  // Both have begun: the lower rank's connection stays, if it has come as far as the peer.
  const bool ours_first = options_.identity.from < options_.peer;
  if (stage_ == Stage::kConnecting && ours_first && connector_.reached_peer()) return false;
  Result<size_t> told = posix::send_some(fd->get(), &kKeptByte, 1);
  if (!told.ok() || *told != 1) return false;
  connector_.drop();
  connected(std::move(*fd));
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

// Sends what waits.
bool TcpLink::transfer() {
  Result<bool> moved = sender_->flush(fd_.get(), &writable_);
  if (moved.ok()) return *moved;
  write_ended_ = true;
  end_ = moved.status().message();
  readable_ = true;  // down to the end, which says why
  drop_queue();
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
  if (goodbye_) {
    if (lost_data_) fail(StatusCode::kPeerLost, "has closed its communicator");
    return;
  }
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
    drop_queue();
  }
  return true;
}

void TcpLink::place(std::byte* destination) { receiver_->place(destination); }

void TcpLink::release(uint64_t token) {
  if (receiver_) receiver_->release(token);
}

void TcpLink::close() {
  if (closed_) return;
  closed_ = true;
  options_.acceptor->forget(options_.peer, this);
  // The last link of a group takes the listeners along: who connects late is refused at once.
  options_.acceptor.reset();
  if (getpid() != pid_) {
    // A forked child shares socket and epoll with its parent: it may only let go.
    connector_.forget();
    return;
  }
  connector_.drop();
  if (stage_ == Stage::kConnected && !goodbye_ && !write_ended_ && !sender_->full()) {
    wire::Header goodbye;
    goodbye.type = wire::MessageType::kGoodbye;
    goodbye.epoch = options_.identity.epoch;
    goodbye.group = options_.identity.group;
    sender_->push(goodbye, nullptr);
    if (writable_) transfer();
  }
  drop_queue();
  stage_ = Stage::kEnded;
  if (!fd_) return;
  options_.poller->remove(fd_.get());
  ::shutdown(fd_.get(), SHUT_WR);  // also where a forked child holds it open
  char waste[4096];
  for (int i = 0; i < kMaxDrains; ++i) {
    Result<size_t> count = posix::receive_some(fd_.get(), waste, sizeof waste);
    if (!count.ok() || *count == 0) break;
  }
  fd_.reset();
}

size_t TcpLink::buffer_bytes() const {
  return sizeof *this + (sender_ ? sizeof *sender_ : 0) +
         (receiver_ ? TcpReceiver::buffer_bytes() : 0);
}

}  // namespace ciuic::transport::tcp
