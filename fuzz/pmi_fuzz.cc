// SPDX-License-Identifier: Apache-2.0
// pmi_fuzz.cc: a launcher that answers the requests of PMI-1 and PMI-2 with anything.

#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "bootstrap/pmi_store.h"
#include "input.h"
#include "sockets.h"

using namespace ciuic;

// Takes all that is said, until the end: requests beyond what a socket holds would wait.
static void take_all(int fd) {
  char buffer[4096];
  while (true) {
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return;
    pollfd entry{fd, POLLIN, 0};
    if (count < 0) ::poll(&entry, 1, -1);
  }
}

static void converse(const bootstrap::PmiOptions& options, const std::string& value) {
  const TimeNs deadline = deadline_after(now_ns(), 10'000);
  const auto session = bootstrap::open_pmi(options, deadline);
  fuzz::require_text(session.status());
  if (!session.ok()) return;
  for (int round = 0; round < 3; ++round) {
    const bool leads = round == 1;
    const Result<std::string> met = (*session)->broadcast(leads ? &value : nullptr, deadline);
    fuzz::require_text(met.status());
    if (!met.ok()) {
      fuzz::require(!(*session)->broadcast(nullptr, deadline).ok(), "a broken session stays so");
      break;
    }
    if (leads) fuzz::require(*met == value, "the leader keeps its value");
    fuzz::require(met->size() <= 64 * 1024, "a bounded value");
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const std::string value(input.text());
  fuzz::SocketPair sockets = fuzz::socket_pair();
  // All answers lie there beforehand, and then comes the end: nothing is waited for. The last ones
  // may be said again and again.
  const int times = input.u8();
  fuzz::say(sockets.theirs, input.bytes(input.u16()));
  const std::string_view last = input.rest();
  for (int i = 0; i <= times; ++i) fuzz::say(sockets.theirs, last);
  ::shutdown(sockets.theirs.get(), SHUT_WR);
  std::thread taking([fd = sockets.theirs.get()] { take_all(fd); });
  converse(
      {.fd = sockets.ours.get(), .version = value.size() % 2 == 0 ? 1 : 2, .rank = 0, .job = "7.0"},
      value);
  sockets.ours.reset();
  taking.join();
  return 0;
}
