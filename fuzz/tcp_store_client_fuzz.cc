// SPDX-License-Identifier: Apache-2.0
// tcp_store_client_fuzz.cc: a store's server that knows the secret and then answers anything.

#include <netinet/in.h>

#include <thread>

#include "bootstrap/tcp_store.h"
#include "bootstrap/tcp_store_protocol.h"
#include "drivers/posix/socket.h"
#include "input.h"
#include "sockets.h"

using namespace ciuic;

static TimeNs soon() { return deadline_after(now_ns(), 20'000); }

// One connection: proves itself, says all of `bytes`, and closes with a reset.
static void serve(int listener, const std::string& bytes) {
  Result<bool> waiting = posix::wait_for(listener, POLLIN, soon());
  fuzz::require(waiting.ok() && *waiting, "a client comes");
  Result<posix::UniqueFd> fd = posix::accept_from(listener);
  fuzz::require(fd.ok() && fd->valid(), "a client is there");
  auto handshake = security::Handshake::accepting(fuzz::kSecret, bootstrap::store_identity());
  while (handshake.wanted() > 0) {
    [[maybe_unused]] const auto ready = posix::wait_for(fd->get(), POLLIN, soon());
    fuzz::shake(*fd, &handshake);
    fuzz::shake(*fd, &handshake);
  }
  fuzz::say(*fd, bytes);
  ::shutdown(fd->get(), SHUT_WR);
  // Until the client has gone: a reset would take what it has not read yet.
  while (posix::wait_for(fd->get(), POLLIN, soon()).ok() && !fuzz::hear(*fd, 4096).empty()) {
  }
  const linger at_once{1, 0};
  ::setsockopt(fd->get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const std::string script(input.bytes(4));
  const std::string answers(input.rest());
  Result<posix::UniqueFd> listener = posix::listen_at({"127.0.0.1", 0});
  fuzz::require(listener.ok(), "a port");
  const Result<posix::Address> address = posix::local_address(listener->get());
  std::thread server([&] { serve(listener->get(), answers); });
  {
    auto store = bootstrap::TcpStore::connect(*address, fuzz::kSecret, soon());
    fuzz::require(store.ok(), "a server that knows the secret is taken");
    for (const char call : script) {
      switch (call & 3) {
        case 0: {
          const Result<std::string> value = (*store)->get("key", 1000);
          fuzz::require_text(value.status());
          if (value.ok()) fuzz::require(value->size() <= (1 << 20), "a bounded value");
          break;
        }
        case 1: {
          [[maybe_unused]] const auto sum = (*store)->add("key", 1);
          break;
        }
        case 2: {
          fuzz::require_text((*store)->set("key", "value"));
          break;
        }
        default: (*store)->erase("key");
      }
    }
  }
  server.join();
  return 0;
}
