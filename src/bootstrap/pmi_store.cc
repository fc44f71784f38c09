// SPDX-License-Identifier: Apache-2.0
// pmi_store.cc: the lines of PMI-1.

#include "bootstrap/pmi_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <map>

#include "base/printable.h"
#include "drivers/posix/socket.h"
#include "drivers/posix/system_status.h"

namespace ciuic::bootstrap {

static constexpr size_t kMaxLine = 64 * 1024;
static constexpr uint32_t kMaxPieces = 4096;
static constexpr size_t kMostValueBytes = 32 * 1024;

// The value of "name=" in a line of "cmd=... name=value ...".
static std::string field(const std::string& line, const std::string& name) {
  const std::string padded = " " + line + " ";
  const size_t at = padded.find(" " + name + "=");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 2;
  return padded.substr(begin, padded.find(' ', begin) - begin);
}

static uint32_t number(const std::string& text, uint32_t limit) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good = error == std::errc{} && end == text.data() + text.size() && !text.empty();
  return good ? std::min(value, limit) : 0;
}

static std::string to_hex(const std::string& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

static Result<std::string> from_hex(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(&text[i], &text[i] + 2, value, 16);
    if (error != std::errc{} || end != &text[i] + 2) {
      return Status(StatusCode::kInvalidArgument, "PMI: a value that is not ours");
    }
    bytes.push_back(static_cast<char>(value));
  }
  return bytes;
}

Result<std::string> PmiSession::read_line(TimeNs deadline) {
  while (true) {
    const size_t end = input_.find('\n');
    if (end != std::string::npos) {
      std::string line = input_.substr(0, end);
      input_.erase(0, end + 1);
      return line;
    }
    if (input_.size() > kMaxLine) {
      return Status(StatusCode::kInvalidArgument, "PMI: an answer without end");
    }
    Result<bool> ready = posix::wait_for(fd_.get(), POLLIN, deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready) return Status(StatusCode::kTimeout, "PMI: the launcher gave no answer in time");
    char buffer[4096];
    const ssize_t count = ::read(fd_.get(), buffer, sizeof buffer);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) return posix::system_status("PMI: read", errno);
    if (count == 0) return Status(StatusCode::kPeerLost, "PMI: the launcher is gone");
    input_.append(buffer, static_cast<size_t>(count));
  }
}

Result<std::string> PmiSession::ask(const std::string& line, const std::string& answer,
                                    TimeNs deadline) {
  const std::string text = line + "\n";
  Status sent = posix::send_all(fd_.get(), text.data(), text.size(), deadline);
  if (!sent.ok()) return Status(sent.code(), "PMI: " + sent.message());
  Result<std::string> got = read_line(deadline);
  if (!got.ok()) return got;
  if (field(*got, "cmd") != answer) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("PMI: \"{}\" where {} was expected", printable(*got, 128), answer));
  }
  return got;
}

Result<std::shared_ptr<PmiSession>> PmiSession::open(int fd, TimeNs deadline) {
  std::shared_ptr<PmiSession> session(new PmiSession());
  // An MPI library in this process may close PMI_FD and the number be given out anew.
  session->fd_.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!session->fd_) return posix::system_status(fmt::format("PMI: PMI_FD={}", fd), errno);
  Result<std::string> init =
      session->ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline);
  if (!init.ok()) return init.status();
  session->owner_ = ::getpid();
  if (field(*init, "rc") != "0") {
    return Status(StatusCode::kMismatch, "PMI: the launcher does not speak version 1");
  }
  Result<std::string> maxes = session->ask("cmd=get_maxes", "maxes", deadline);
  if (!maxes.ok()) return maxes.status();
  const uint32_t longest = number(field(*maxes, "vallen_max"), 1 << 20);
  const uint32_t longest_key = number(field(*maxes, "keylen_max"), 1 << 20);
  if (longest < 32 || longest_key < 32) {
    return Status(StatusCode::kUnsupported, "PMI: the launcher's keys or values are too short");
  }
  // Two digits a byte, and a zero at the end; with the rest of its line it is no longer than a
  // line.
  session->value_bytes_ = std::min<size_t>((longest - 2) / 2, kMaxLine / 4);
  Result<std::string> name = session->ask("cmd=get_my_kvsname", "my_kvsname", deadline);
  if (!name.ok()) return name.status();
  session->kvs_ = field(*name, "kvsname");
  return session;
}

PmiSession::~PmiSession() {
  if (!fd_ || owner_ != ::getpid()) return;
  // The launcher may be gone, or an MPI library have finalized already: nothing is left to do then.
  [[maybe_unused]] const Result<std::string> bye =
      ask("cmd=finalize", "finalize_ack", deadline_after(now_ns(), 1000));
}

Status PmiSession::put(const std::string& key, const std::string& value, TimeNs deadline) {
  Result<std::string> answer = ask(
      fmt::format("cmd=put kvsname={} key={} value={}", kvs_, key, value), "put_result", deadline);
  if (!answer.ok()) return answer.status();
  if (field(*answer, "rc") == "0") return {};
  return Status(StatusCode::kResource,
                "PMI: the launcher refused a value: " + printable(*answer, 128));
}

Result<std::string> PmiSession::get(const std::string& key, TimeNs deadline) {
  Result<std::string> answer =
      ask(fmt::format("cmd=get kvsname={} key={}", kvs_, key), "get_result", deadline);
  if (!answer.ok()) return answer;
  if (field(*answer, "rc") != "0") {
    return Status(StatusCode::kPeerLost, "PMI: all ranks met, but rank 0 left no invitation");
  }
  return field(*answer, "value");
}

Result<std::string> PmiSession::broadcast(const std::string* value, TimeNs deadline) {
  const std::lock_guard lock(mutex_);
  if (!broken_.ok()) return broken_;
  if (value != nullptr && value->size() > kMostValueBytes) {
    return Status(StatusCode::kInvalidArgument, "PMI: the value is too large");
  }
  const std::string prefix = fmt::format("ciuic-{}", count_++);
  const auto run = [&]() -> Result<std::string> {
    if (value != nullptr) {
      uint32_t pieces = 0;
      for (size_t at = 0; at < value->size(); at += value_bytes_) {
        CIUIC_RETURN_IF_ERROR(put(fmt::format("{}-{}", prefix, pieces++),
                                  to_hex(value->substr(at, value_bytes_)), deadline));
      }
      CIUIC_RETURN_IF_ERROR(put(prefix, std::to_string(pieces), deadline));
    }
    Result<std::string> met = ask("cmd=barrier_in", "barrier_out", deadline);
    if (!met.ok()) {
      return met.status().code() == StatusCode::kTimeout
                 ? Status(StatusCode::kTimeout, "PMI: not all ranks of the job came to the join")
                 : met.status();
    }
    if (value != nullptr) return *value;
    Result<std::string> pieces = get(prefix, deadline);
    if (!pieces.ok()) return pieces;
    std::string hex;
    for (uint32_t i = 0; i < number(*pieces, kMaxPieces); ++i) {
      Result<std::string> piece = get(fmt::format("{}-{}", prefix, i), deadline);
      if (!piece.ok()) return piece;
      hex += *piece;
      if (hex.size() > 2 * kMostValueBytes) {
        return Status(StatusCode::kInvalidArgument, "PMI: a value that is not ours");
      }
    }
    return from_hex(hex);
  };
  Result<std::string> result = run();
  // An answer that is still to come would be taken for the next one's.
  if (!result.ok()) broken_ = result.status();
  return result;
}

Result<std::shared_ptr<PmiSession>> process_pmi_session(int fd, TimeNs deadline) {
  static std::mutex mutex;
  static std::map<int, std::shared_ptr<PmiSession>> sessions;
  const std::lock_guard lock(mutex);
  const auto found = sessions.find(fd);
  if (found != sessions.end()) return found->second;
  Result<std::shared_ptr<PmiSession>> session = PmiSession::open(fd, deadline);
  if (session.ok()) sessions[fd] = *session;
  return session;
}

static Status unsupported() {
  return Status(StatusCode::kUnsupported, "PMI's store serves the join alone");
}

Status PmiStore::set(const std::string&, const std::string&) { return unsupported(); }

Result<std::string> PmiStore::get(const std::string&, int64_t) { return unsupported(); }

Result<int64_t> PmiStore::add(const std::string&, int64_t) { return unsupported(); }

}  // namespace ciuic::bootstrap
