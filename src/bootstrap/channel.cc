// SPDX-License-Identifier: Apache-2.0
// channel.cc: a handshake, perhaps that of TLS, then frames of four bytes of length and that many
// bytes.

#include "bootstrap/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "base/fork.h"
#include "bootstrap/bytes.h"
#include "drivers/posix/socket.h"
#include "drivers/posix/system_status.h"

namespace ciuic::bootstrap {

static constexpr size_t kReadBytes = 64 * 1024;
static constexpr size_t kMaxQueuedFrames = 16;  // that nobody has taken; then reading pauses

Channel::Channel(posix::UniqueFd fd, security::Handshake handshake, size_t max_frame_bytes)
    : fd_(std::move(fd)),
      handshake_(std::move(handshake)),
      max_frame_bytes_(max_frame_bytes),
      made_in_(fork_generation()) {
  proof_out_ = std::exchange(handshake_.to_send(), "");
}

Channel::~Channel() {
  if (!fd_ || !tls_established_ || made_in_ != fork_generation()) return;
  tls_->close();
  bool writable = true;
  [[maybe_unused]] const Result<size_t> sent = tls_->flush(fd_.get(), &writable);
}

Result<Channel> Channel::connect(const posix::Address& address, security::Handshake handshake,
                                 size_t max_frame_bytes) {
  Result<posix::UniqueFd> fd = posix::start_connect(address);
  if (!fd.ok()) return fd.status();
  Channel channel(std::move(*fd), std::move(handshake), max_frame_bytes);
  channel.connecting_ = true;
  channel.address_ = address;
  return channel;
}

bool Channel::proven() const {
  return handshake_.done() && !connecting_ && (tls_established_ || !handshake_.uses_tls());
}

bool Channel::flushed() const {
  return proof_out_.empty() && out_.empty() && !(tls_ && tls_->is_sending());
}

short Channel::events() const {
  if (connecting_) return POLLOUT;
  const bool reads = frames_.size() < kMaxQueuedFrames;
  const bool writes =
      !proof_out_.empty() || (tls_ && tls_->is_sending()) || (proven() && !out_.empty());
  return static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
}

// ---- the proof ----

Status Channel::write_proof() {
  while (!proof_out_.empty()) {
    Result<size_t> count = posix::send_some(fd_.get(), proof_out_.data(), proof_out_.size());
    if (!count.ok()) return count.status();
    if (*count == 0) break;
    proof_out_.erase(0, *count);
  }
  return {};
}

// Takes no byte more than the handshake needs: what follows is TLS's, or a frame.
Status Channel::read_proof() {
  char buffer[1024];
  while (!handshake_.done()) {
    const size_t wanted = handshake_.wanted();
    if (wanted == 0) return Status(StatusCode::kPermission, "the handshake has failed");
    const size_t room = std::min(sizeof buffer, wanted - in_.size());
    Result<size_t> count = posix::receive_some(fd_.get(), buffer, room);
    if (!count.ok()) return count.status();
    if (*count == 0) return {};
    in_.append(buffer, *count);
    if (in_.size() < wanted) continue;
    const Status status = handshake_.receive(std::exchange(in_, ""));
    proof_out_ += std::exchange(handshake_.to_send(), "");
    if (!status.ok()) {
      // The last word lets the other side come to the same verdict; if it does not fit, so be it.
      [[maybe_unused]] const Status sent = write_proof();
      return status;
    }
  }
  return handshake_.uses_tls() ? start_tls() : Status();
}

Status Channel::start_tls() {
  Result<std::string> key = handshake_.tls_key();
  if (!key.ok()) return key.status();
  security::TlsOptions options;
  options.accepts = handshake_.accepts();
  options.key = std::move(*key);
  options.sleeps = true;  // rank 0 has one for each rank
  Result<std::unique_ptr<security::TlsSocket>> tls = security::TlsSocket::create(options);
  if (!tls.ok()) return tls.status();
  tls_ = std::move(*tls);
  return {};
}

// ---- frames ----

Status Channel::write_out() {
  CIUIC_RETURN_IF_ERROR(write_proof());
  if (!proven() || !proof_out_.empty()) return {};
  bool writable = true;
  while (writable && out_begin_ < out_.size()) {
    const std::string_view rest = std::string_view(out_).substr(out_begin_);
    if (tls_) {
      const std::string_view record = rest.substr(0, security::kTlsRecordBytes);
      Result<bool> taken = tls_->write(std::as_bytes(std::span(record.data(), record.size())));
      if (!taken.ok()) return taken.status();
      if (*taken) out_begin_ += record.size();
      Result<size_t> sent = tls_->flush(fd_.get(), &writable);
      if (!sent.ok()) return sent.status();
      // TLS may first want the rest of what the peer is saying to it.
      if (!*taken && *sent == 0) return {};
    } else {
      Result<size_t> count = posix::send_some(fd_.get(), rest.data(), rest.size());
      if (!count.ok()) return count.status();
      out_begin_ += *count;
      writable = *count > 0;
    }
  }
  if (out_begin_ == out_.size()) {
    out_.clear();
    out_begin_ = 0;
  }
  if (!tls_ || !writable) return {};
  return tls_->flush(fd_.get(), &writable).status();
}

Status Channel::take_frames() {
  size_t begin = 0;
  Status status;
  while (in_.size() - begin >= 4 && frames_.size() < kMaxQueuedFrames) {
    const uint32_t bytes = ByteReader(std::string_view(in_).substr(begin, 4)).u32();
    if (bytes > max_frame_bytes_) {
      status =
          Status(StatusCode::kInvalidArgument,
                 fmt::format("a frame of {} bytes; {} are the limit", bytes, max_frame_bytes_));
      break;
    }
    if (in_.size() - begin - 4 < bytes) break;
    frames_.push_back(in_.substr(begin + 4, bytes));
    begin += 4 + size_t{bytes};
  }
  in_.erase(0, begin);
  return status;
}

// 0: nothing is there now.
Result<size_t> Channel::receive_some(char* buffer, size_t bytes) {
  if (!tls_) return posix::receive_some(fd_.get(), buffer, bytes);
  const iovec part = {buffer, bytes};
  bool readable = true;
  Result<size_t> count = tls_->receive(fd_.get(), {&part, 1}, &readable);
  if (count.ok() || count.status().code() != StatusCode::kClosed) return count;
  return Status(StatusCode::kPeerLost, "the peer closed the connection");
}

Status Channel::read_in() {
  if (!handshake_.done()) {
    CIUIC_RETURN_IF_ERROR(read_proof());
    if (!handshake_.done()) return {};
  }
  if (tls_ && !tls_established_) {
    CIUIC_RETURN_IF_ERROR(write_proof());
    if (!proof_out_.empty()) return {};  // the answer goes before TLS's first byte
    Result<bool> done = tls_->shake_hands(fd_.get());
    if (!done.ok()) return done.status();
    tls_established_ = *done;
    if (!*done) return {};
  }
  char buffer[kReadBytes];
  while (frames_.size() < kMaxQueuedFrames) {
    Result<size_t> count = receive_some(buffer, sizeof buffer);
    if (!count.ok()) return count.status();
    if (*count == 0) return {};
    in_.append(buffer, *count);
    CIUIC_RETURN_IF_ERROR(take_frames());
  }
  return {};
}

Status Channel::progress() {
  if (connecting_) {
    Result<bool> ready = posix::wait_for(fd_.get(), POLLOUT, /*deadline=*/0);
    if (!ready.ok()) return ready.status();
    if (!*ready) return {};
    CIUIC_RETURN_IF_ERROR(posix::connect_result(fd_.get(), address_));
    connecting_ = false;
  }
  if (proven()) CIUIC_RETURN_IF_ERROR(take_frames());  // that waited for room
  const Status read = read_in();
  const Status written = write_out();
  // A peer that said why before it closed is heard first.
  return read.ok() ? written : read;
}

void Channel::send(std::string_view frame) {
  // What has gone is let go when it is the larger part: no byte is moved more than once on average.
  if (out_begin_ > out_.size() / 2) {
    out_.erase(0, out_begin_);
    out_begin_ = 0;
  }
  out_ += ByteWriter().u32(static_cast<uint32_t>(frame.size())).raw(frame).take();
}

bool Channel::receive(std::string* frame) {
  if (frames_.empty()) return false;
  *frame = std::move(frames_.front());
  frames_.pop_front();
  return true;
}

Status Channel::flush(TimeNs deadline) {
  while (true) {
    CIUIC_RETURN_IF_ERROR(write_out());
    if (flushed()) return {};
    if (!proven()) return Status(StatusCode::kPermission, "the peer has not proven itself yet");
    Result<bool> ready = posix::wait_for(fd_.get(), POLLOUT, deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready) return Status(StatusCode::kTimeout, "the peer took nothing in time");
  }
}

Result<std::string> Channel::receive_by(TimeNs deadline) {
  std::string frame;
  while (!receive(&frame)) {
    const Status status = progress();
    if (receive(&frame)) break;
    if (!status.ok()) return status;
    Result<bool> ready = posix::wait_for(fd_.get(), events(), deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready) return Status(StatusCode::kTimeout, "the peer said nothing in time");
  }
  return frame;
}

Status wait_for_any(std::vector<pollfd>* fds, TimeNs deadline) {
  const int timeout = posix::poll_timeout_ms(deadline, now_ns());
  // EINTR: the caller looks at its clock and comes again.
  if (::poll(fds->data(), fds->size(), timeout) < 0 && errno != EINTR) {
    return posix::system_status("poll", errno);
  }
  return {};
}

}  // namespace ciuic::bootstrap
