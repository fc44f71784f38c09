// SPDX-License-Identifier: Apache-2.0
// pmi_pipe.cc: lines, and texts with their length before them.

#include "bootstrap/pmi_pipe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/printable.h"
#include "drivers/posix/socket.h"
#include "drivers/posix/system_status.h"

namespace ciuic::bootstrap {

static constexpr size_t kMaxText = 64 * 1024;
static constexpr size_t kLengthDigits = 6;

Result<PmiPipe> PmiPipe::open(int fd) {
  PmiPipe pipe;
  pipe.fd_.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!pipe.fd_) return posix::system_status(fmt::format("PMI: PMI_FD={}", fd), errno);
  pipe.owner_ = ::getpid();
  return pipe;
}

bool PmiPipe::is_own() const { return fd_ && owner_ == ::getpid(); }

Status PmiPipe::read_more(TimeNs deadline) {
  while (true) {
    Result<bool> ready = posix::wait_for(fd_.get(), POLLIN, deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready) return {StatusCode::kTimeout, "PMI: the launcher gave no answer in time"};
    char buffer[4096];
    const ssize_t count = ::read(fd_.get(), buffer, sizeof buffer);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) return posix::system_status("PMI: read", errno);
    if (count == 0) return {StatusCode::kPeerLost, "PMI: the launcher is gone"};
    input_.append(buffer, static_cast<size_t>(count));
    return {};
  }
}

Result<std::string> PmiPipe::read_line(TimeNs deadline) {
  while (true) {
    const size_t end = input_.find('\n');
    if (end != std::string::npos) {
      std::string line = input_.substr(0, end);
      input_.erase(0, end + 1);
      return line;
    }
    if (input_.size() > kMaxText) {
      return Status(StatusCode::kInvalidArgument, "PMI: an answer without end");
    }
    CIUIC_RETURN_IF_ERROR(read_more(deadline));
  }
}

Result<std::string> PmiPipe::read_counted(TimeNs deadline) {
  while (input_.size() < kLengthDigits) CIUIC_RETURN_IF_ERROR(read_more(deadline));
  // "    42": spaces before the digits, or after them.
  std::string digits = input_.substr(0, kLengthDigits);
  std::erase(digits, ' ');
  uint32_t bytes = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
  if (error != std::errc{} || end != digits.data() + digits.size() || bytes > kMaxText) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("PMI: \"{}\" where the length of an answer was expected",
                              printable(input_.substr(0, kLengthDigits))));
  }
  while (input_.size() < kLengthDigits + bytes) CIUIC_RETURN_IF_ERROR(read_more(deadline));
  std::string text = input_.substr(kLengthDigits, bytes);
  input_.erase(0, kLengthDigits + bytes);
  return text;
}

Status PmiPipe::send(const std::string& bytes, TimeNs deadline) {
  const Status sent = posix::send_all(fd_.get(), bytes.data(), bytes.size(), deadline);
  return sent.ok() ? sent : Status(sent.code(), "PMI: " + sent.message());
}

std::string pmi_field(const std::string& text, char separator, const std::string& name) {
  const std::string padded = separator + text + separator;
  const size_t at = padded.find(separator + name + "=");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 2;
  return padded.substr(begin, padded.find(separator, begin) - begin);
}

uint32_t pmi_number(const std::string& text, uint32_t limit) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good = error == std::errc{} && end == text.data() + text.size() && !text.empty();
  return good ? std::min(value, limit) : 0;
}

}  // namespace ciuic::bootstrap
