// SPDX-License-Identifier: Apache-2.0
// tcp_store.cc: the client of the TCP store. The server is in tcp_store_server.cc.

#include "bootstrap/tcp_store.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "base/printable.h"
#include "bootstrap/bytes.h"
#include "bootstrap/dial.h"
#include "bootstrap/tcp_store_protocol.h"
#include "drivers/posix/socket.h"

namespace ciuic::bootstrap {

// How long an answer may take that needs no waiting, and what is added to those that do.
static constexpr int64_t kAnswerMs = 30'000;

Result<std::unique_ptr<TcpStore>> TcpStore::connect(const posix::Address& host_and_port,
                                                    const std::string& secret, TimeNs deadline,
                                                    bool tls) {
  Result<std::vector<posix::Address>> addresses =
      posix::resolve(host_and_port.text, host_and_port.port);
  if (!addresses.ok()) return addresses.status();
  const std::string name = "tcp://" + host_and_port.format();
  int wait_ms = 10;
  while (true) {
    const TimeNs try_deadline = std::min(deadline, deadline_after(now_ns(), 10'000));
    Result<Channel> channel =
        dial("the store " + name, *addresses, secret,
             store_identity(tls ? security::UseTls::kYes : security::UseTls::kNo),
             kMaxStoreFrameBytes, try_deadline);
    if (channel.ok()) {
      Result<posix::Address> server = posix::peer_address(channel->fd());
      if (!server.ok()) return server.status();
      return std::unique_ptr<TcpStore>(new TcpStore(name, *server, std::move(*channel)));
    }
    const StatusCode code = channel.status().code();
    const bool may_come = code == StatusCode::kPeerLost || code == StatusCode::kTimeout;
    if (!may_come) return channel.status();
    const TimeNs now = now_ns();
    if (now >= deadline) {
      return Status(StatusCode::kTimeout, channel.status().message());
    }
    // Nobody listens yet, and nothing will tell when somebody does.
    ::poll(nullptr, 0, posix::poll_timeout_ms(deadline, now, wait_ms));
    wait_ms = std::min(wait_ms * 2, 500);
  }
}

Result<std::string> TcpStore::ask(const std::string& request, int64_t timeout_ms) {
  if (!broken_.ok()) return broken_;
  const TimeNs deadline = deadline_after(now_ns(), timeout_ms);
  channel_.send(request);
  const Status sent = channel_.flush(deadline);
  Result<std::string> frame = sent.ok() ? channel_.receive_by(deadline) : sent;
  if (!frame.ok()) {
    broken_ = Status(frame.status().code(), "store " + name_ + ": " + frame.status().message());
    return broken_;
  }
  ByteReader in(*frame);
  const auto code = static_cast<StatusCode>(in.u8());
  std::string text = in.text(kMaxStoreFrameBytes);
  if (!in.complete() || code > StatusCode::kSystem) {
    return Status(StatusCode::kInvalidArgument, "store " + name_ + ": an answer of no known form");
  }
  if (code != StatusCode::kOk) {
    return Status(code, "store " + name_ + ": " + printable(text));
  }
  return text;
}

static ByteWriter request_for(Request request, const std::string& key) {
  ByteWriter out;
  out.u8(static_cast<uint8_t>(request)).text(key);
  return out;
}

Status TcpStore::set(const std::string& key, const std::string& value) {
  CIUIC_RETURN_IF_ERROR(check_entry(key, value));
  return ask(request_for(Request::kSet, key).text(value).take(), kAnswerMs).status();
}

Result<std::string> TcpStore::get(const std::string& key, int64_t timeout_ms) {
  CIUIC_RETURN_IF_ERROR(check_entry(key, ""));
  const int64_t wait_ms = std::clamp<int64_t>(timeout_ms, 0, INT64_MAX / 4'000'000);
  return ask(request_for(Request::kGet, key).u64(static_cast<uint64_t>(wait_ms)).take(),
             wait_ms + kAnswerMs);
}

Result<int64_t> TcpStore::add(const std::string& key, int64_t amount) {
  CIUIC_RETURN_IF_ERROR(check_entry(key, ""));
  Result<std::string> sum =
      ask(request_for(Request::kAdd, key).u64(static_cast<uint64_t>(amount)).take(), kAnswerMs);
  if (!sum.ok()) return sum.status();
  return add_to_text(key, *sum, 0);
}

void TcpStore::erase(const std::string& key) {
  [[maybe_unused]] const Result<std::string> answer =
      ask(request_for(Request::kErase, key).take(), kAnswerMs);
}

}  // namespace ciuic::bootstrap
