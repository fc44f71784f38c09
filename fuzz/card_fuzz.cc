// SPDX-License-Identifier: Apache-2.0
// card_fuzz.cc: what a rank says of itself at the join is refused, or reads the same once written.

#include "bootstrap/card.h"
#include "input.h"

using namespace ciuic;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Result<bootstrap::Card> card = bootstrap::decode_card(bytes);
  fuzz::require_text(card.status());
  if (!card.ok()) return 0;
  const std::string written = bootstrap::encode(*card);
  const Result<bootstrap::Card> again = bootstrap::decode_card(written);
  fuzz::require(again.ok() && *again == *card, "a card reads the same once written");
  fuzz::require(written.size() <= bootstrap::kMaxCardBytes, "a card that a roll can hold");
  fuzz::require(bootstrap::compare(*card, *again).ok(), "a card agrees with itself");
  fuzz::require_text(bootstrap::compare(bootstrap::Card(), *card));
  fuzz::require_text({StatusCode::kMismatch, card->who()});
  return 0;
}
