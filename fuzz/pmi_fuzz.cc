// SPDX-License-Identifier: Apache-2.0
// pmi_fuzz.cc: a launcher that answers the requests of PMI-1 and PMI-2 with anything.

#include <sys/socket.h>

#include "bootstrap/pmi_store.h"
#include "input.h"
#include "sockets.h"

using namespace ciuic;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  // Nobody takes what is said to the launcher: it must fit into the socket, in the smallest pieces.
  const std::string value(input.text().substr(0, 1000));
  fuzz::SocketPair sockets = fuzz::socket_pair();
  // All answers lie there beforehand, and then comes the end: nothing is waited for. The last ones
  // may be said again and again.
  const int times = input.u8();
  fuzz::say(sockets.theirs, input.bytes(input.u16()));
  const std::string_view last = input.rest();
  for (int i = 0; i <= times; ++i) fuzz::say(sockets.theirs, last);
  ::shutdown(sockets.theirs.get(), SHUT_WR);
  const TimeNs deadline = deadline_after(now_ns(), 10'000);
  const bootstrap::PmiOptions options{
      .fd = sockets.ours.get(), .version = value.size() % 2 == 0 ? 1 : 2, .rank = 0, .job = "7.0"};
  const auto session = bootstrap::open_pmi(options, deadline);
  fuzz::require_text(session.status());
  if (!session.ok()) return 0;
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
  return 0;
}
