// SPDX-License-Identifier: Apache-2.0
// invitation_fuzz.cc: what lies in a store, where others can write, under the keys of a join.

#include "bootstrap/invitation.h"
#include "bootstrap/memory_store.h"
#include "input.h"

using namespace ciuic;

static void read_from_store(std::string_view counter, std::string_view invitation) {
  bootstrap::MemoryStore store;
  if (!store.set("ciuic/default/counter", std::string(counter)).ok()) return;
  bootstrap::MeetingPlace place(&store, "default");
  const Result<bootstrap::MeetingPlace::State> state = place.look();
  if (!state.ok()) return;
  fuzz::require(state->next != state->open, "a new incarnation is another one");
  const std::string key = "ciuic/default/invitation/" + std::to_string(state->open);
  if (!store.set(key, std::string(invitation)).ok()) return;
  [[maybe_unused]] const auto read = place.read(state->open, /*timeout_ms=*/0);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const std::string_view counter = input.text();
  const std::string bytes(input.rest());
  read_from_store(counter, bytes);
  const Result<bootstrap::Invitation> invitation = bootstrap::decode_invitation(bytes);
  fuzz::require_text(invitation.status());
  if (!invitation.ok()) return 0;
  fuzz::require_text(invitation->failure);
  const std::string written = bootstrap::encode(*invitation);
  const Result<bootstrap::Invitation> again = bootstrap::decode_invitation(written);
  fuzz::require(again.ok() && bootstrap::encode(*again) == written,
                "an invitation reads the same once written");
  [[maybe_unused]] const auto tried = bootstrap::reachable(
      "machine", invitation->machine_id, invitation->addresses, invitation->loopback);
  return 0;
}
