// SPDX-License-Identifier: Apache-2.0
// handshake_fuzz.cc: nobody proves a secret that it does not know: a stranger who says anything to
// either side, and one in the middle who changes what two honest sides say.

#include "input.h"
#include "security/handshake.h"

using namespace ciuic;
using security::Handshake;

static const std::string kSecret(32, 's');

static security::Identity identity_of(fuzz::Input* input) {
  security::Identity identity;
  identity.job = printable(input->text(), 64);
  identity.epoch = input->u8();
  identity.group = input->u8();
  identity.purpose = input->u8();
  identity.from = input->below(4);
  identity.to = input->below(4);
  return identity;
}

static void speak_to(Handshake handshake, fuzz::Input* input) {
  for (int message = 0; handshake.wanted() > 0; ++message) {
    fuzz::require(message < 3 && handshake.wanted() < 1024, "a bounded handshake");
    const bool whole = input->left() >= handshake.wanted();
    const Status status = handshake.receive(std::string(input->bytes(handshake.wanted())));
    fuzz::require(whole || !status.ok(), "no message that is too short");
    fuzz::require_text(status);
    handshake.to_send().clear();
  }
  fuzz::require(!handshake.done(), "no proof without the secret");
}

// What `from` says reaches `to`, with some bytes changed. Whether it was all.
static bool carry(Handshake* from, Handshake* to, fuzz::Input* input, bool* changed) {
  std::string message = std::exchange(from->to_send(), "");
  if (message.empty() || message.size() != to->wanted()) return false;
  for (int changes = input->below(4); changes > 0; --changes) {
    const size_t at = input->u8() % message.size();
    const uint8_t mask = input->u8();
    message[at] = static_cast<char>(message[at] ^ mask);
    *changed = *changed || mask != 0;
  }
  return to->receive(message).ok();
}

static void stand_between(fuzz::Input* input) {
  const security::Identity identity = identity_of(input);
  const std::string other(input->flag() ? kSecret : std::string(32, 'x'));
  Handshake connecting = Handshake::connecting(kSecret, identity);
  Handshake accepting = Handshake::accepting(other, identity);
  bool changed = other != kSecret;
  // Two changes may cancel out.
  const bool all = carry(&connecting, &accepting, input, &changed) &&
                   carry(&accepting, &connecting, input, &changed) &&
                   carry(&connecting, &accepting, input, &changed);
  if (!changed) {
    fuzz::require(all && connecting.done() && accepting.done(), "two honest sides meet");
    fuzz::require(accepting.peer().from == identity.from, "the peer is who it says");
  }
  if (other != kSecret) fuzz::require(!connecting.done() && !accepting.done(), "another secret");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  switch (input.below(3)) {
    case 0: {
      const security::Identity identity = identity_of(&input);
      speak_to(Handshake::accepting(kSecret, identity), &input);
      break;
    }
    case 1: {
      const security::Identity identity = identity_of(&input);
      speak_to(Handshake::connecting(kSecret, identity), &input);
      break;
    }
    default: stand_between(&input);
  }
  return 0;
}
