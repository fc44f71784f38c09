// SPDX-License-Identifier: Apache-2.0
// sockets.h: connections within the fuzzer's process: at one end the code under test, at the other
// a peer that says what it likes, after an honest handshake or without one.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

#include "drivers/posix/unique_fd.h"
#include "input.h"
#include "security/handshake.h"

namespace ciuic::fuzz {

inline const std::string kSecret(32, 's');

inline security::Identity identity(int from, int to) {
  security::Identity identity;
  identity.job = "fuzz";
  identity.epoch = 3;
  identity.group = 7;
  identity.from = from;
  identity.to = to;
  return identity;
}

struct SocketPair {
  posix::UniqueFd ours;
  posix::UniqueFd theirs;
};

inline SocketPair socket_pair() {
  int fds[2] = {-1, -1};
  const int kind = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
  require(::socketpair(AF_UNIX, kind, 0, fds) == 0, "a socket pair");
  return {posix::UniqueFd(fds[0]), posix::UniqueFd(fds[1])};
}

// Both buffers are far larger than what is said here; what does not fit is left unsaid.
inline void say(const posix::UniqueFd& fd, std::string_view bytes) {
  [[maybe_unused]] const ssize_t sent =
      ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Says the same in pieces of the size that a byte of the input gives, and lets `act` look between.
template <typename Act>
void say_in_pieces(const posix::UniqueFd& fd, Input* input, Act act) {
  while (!input->empty()) {
    const int size = input->u8();
    say(fd, input->bytes(size == 255 ? 4096 : static_cast<size_t>(size)));
    act();
  }
}

inline std::string hear(const posix::UniqueFd& fd, size_t bytes) {
  std::string heard(bytes, '\0');
  const ssize_t count = ::recv(fd.get(), heard.data(), bytes, MSG_DONTWAIT);
  heard.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return heard;
}

// The honest end of a handshake, one move: sends what it has to and takes what it waits for.
inline void shake(const posix::UniqueFd& fd, security::Handshake* handshake) {
  const size_t wanted = handshake->wanted();
  if (handshake->to_send().empty() && wanted > 0) {
    const std::string heard = hear(fd, wanted);
    if (heard.size() == wanted) require(handshake->receive(heard).ok(), "an honest handshake");
  }
  say(fd, std::exchange(handshake->to_send(), ""));
}

}  // namespace ciuic::fuzz
