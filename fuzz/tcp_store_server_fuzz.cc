// SPDX-License-Identifier: Apache-2.0
// tcp_store_server_fuzz.cc: a client of the store that knows the secret, or does not, and then says
// anything; an honest one is served beside it.

#include <netinet/in.h>

#include "bootstrap/dial.h"
#include "bootstrap/tcp_store.h"
#include "bootstrap/tcp_store_protocol.h"
#include "drivers/posix/socket.h"
#include "input.h"
#include "sockets.h"

using namespace ciuic;
using bootstrap::Channel;
using bootstrap::TcpStoreServer;

static TimeNs soon() { return deadline_after(now_ns(), 20'000); }

// Resets the connection at its end: else ports would run out, waiting after so many of them.
static void leave_no_trace(int fd) {
  const linger at_once{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

static void speak_as_stranger(const posix::Address& server, fuzz::Input* input) {
  Result<posix::UniqueFd> fd = posix::connect_to(server, soon());
  fuzz::require(fd.ok(), "a server that accepts");
  leave_no_trace(fd->get());
  fuzz::say(*fd, input->rest());
}

// Frames, each with its length first, as whole answers are waited for; what a get() waits for is
// not.
static void speak_as_client(const posix::Address& server, fuzz::Input* input) {
  Result<Channel> channel = bootstrap::dial("the store", {server}, fuzz::kSecret,
                                            bootstrap::store_identity(), 1 << 20, soon());
  fuzz::require(channel.ok(), "a client that knows the secret is let in");
  leave_no_trace(channel->fd());
  for (int requests = 0; !input->empty() && requests < 32; ++requests) {
    const bool waits = input->flag();
    channel->send(input->text());
    if (!channel->flush(soon()).ok()) return;
    if (waits && !channel->receive_by(deadline_after(now_ns(), 1)).ok()) continue;
  }
  fuzz::say(posix::UniqueFd(::dup(channel->fd())), input->rest());
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  auto server = TcpStoreServer::start({"127.0.0.1", 0}, fuzz::kSecret);
  fuzz::require(server.ok(), "a server starts");
  const posix::Address address = (*server)->address();
  if (input.below(4) == 0) {
    speak_as_stranger(address, &input);
  } else {
    speak_as_client(address, &input);
  }
  Result<Channel> honest = bootstrap::dial("the store", {address}, fuzz::kSecret,
                                           bootstrap::store_identity(), 1 << 20, soon());
  fuzz::require(honest.ok(), "an honest client is served beside it");
  leave_no_trace(honest->fd());
  honest->send(std::string("\x03\x01\x00\x00\x00k\x01\x00\x00\x00\x00\x00\x00\x00", 14));
  fuzz::require(honest->receive_by(soon()).ok(), "an honest client is answered");
  return 0;
}
