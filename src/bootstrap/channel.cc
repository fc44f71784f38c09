// SPDX-License-Identifier: Apache-2.0
// channel.cc: a handshake, then frames of four bytes of length and that many bytes.

#include "bootstrap/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "bootstrap/bytes.h"
#include "drivers/posix/socket.h"
#include "drivers/posix/system_status.h"

namespace ciuic::bootstrap {

static constexpr size_t kReadBytes = 64 * 1024;
static constexpr size_t kMaxQueuedFrames = 16;  // that nobody has taken; then reading pauses

Channel::Channel(posix::UniqueFd fd, security::Handshake handshake, size_t max_frame_bytes)
    : fd_(std::move(fd)), handshake_(std::move(handshake)), max_frame_bytes_(max_frame_bytes) {
  out_ = std::move(handshake_.to_send());
  handshake_.to_send().clear();
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

short Channel::events() const {
  if (connecting_) return POLLOUT;
  const bool reads = frames_.size() < kMaxQueuedFrames;
  return static_cast<short>((reads ? POLLIN : 0) | (out_.empty() ? 0 : POLLOUT));
}

Status Channel::write_out() {
  while (!out_.empty()) {
    Result<size_t> count = posix::send_some(fd_.get(), out_.data(), out_.size());
    if (!count.ok()) return count.status();
    if (*count == 0) break;
    out_.erase(0, *count);
  }
  return {};
}

Status Channel::take_input() {
  while (!handshake_.done()) {
    const size_t wanted = handshake_.wanted();
    if (wanted == 0) return Status(StatusCode::kPermission, "the handshake has failed");
    if (in_.size() < wanted) return {};
    const Status status = handshake_.receive(in_.substr(0, wanted));
    in_.erase(0, wanted);
    out_ += handshake_.to_send();
    handshake_.to_send().clear();
    if (!status.ok()) {
      // The last word lets the other side come to the same verdict; if it does not fit, so be it.
      [[maybe_unused]] const Status sent = write_out();
      return status;
    }
  }
  while (in_.size() >= 4 && frames_.size() < kMaxQueuedFrames) {
    const uint32_t bytes = ByteReader(std::string_view(in_).substr(0, 4)).u32();
    if (bytes > max_frame_bytes_) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("a frame of {} bytes; {} are the limit", bytes, max_frame_bytes_));
    }
    if (in_.size() - 4 < bytes) break;
    frames_.push_back(in_.substr(4, bytes));
    in_.erase(0, 4 + size_t{bytes});
  }
  return {};
}

Status Channel::read_in() {
  char buffer[kReadBytes];
  while (frames_.size() < kMaxQueuedFrames) {
    // Until the proof is done, no byte more than it needs is taken.
    const size_t wanted = handshake_.wanted();
    const size_t room = handshake_.done() ? sizeof buffer : wanted - std::min(wanted, in_.size());
    if (room == 0 && !handshake_.done()) return take_input();
    Result<size_t> count = posix::receive_some(fd_.get(), buffer, room);
    if (!count.ok()) return count.status();
    if (*count == 0) return {};
    in_.append(buffer, *count);
    CIUIC_RETURN_IF_ERROR(take_input());
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
  CIUIC_RETURN_IF_ERROR(take_input());  // frames that waited for room
  const Status read = read_in();
  const Status written = write_out();
  // A peer that said why before it closed is heard first.
  return read.ok() ? written : read;
}

void Channel::send(std::string_view frame) {
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
    if (out_.empty()) return {};
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
