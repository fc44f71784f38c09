// SPDX-License-Identifier: Apache-2.0
// join_messages_fuzz.cc: every frame of the join, read as each of its kinds.

#include "bootstrap/messages.h"
#include "input.h"

using namespace ciuic;

static void check_roll(std::string_view bytes) {
  bootstrap::Roll roll;
  const Status status = bootstrap::decode_roll(bytes, &roll);
  fuzz::require_text(status);
  if (!status.ok()) return;
  for (size_t rank = 0; rank < roll.cards.size(); ++rank) {
    fuzz::require(roll.cards[rank].rank == static_cast<int>(rank), "cards stand by rank");
  }
  const std::string written = bootstrap::encode_roll(roll);
  bootstrap::Roll again;
  fuzz::require(bootstrap::decode_roll(written, &again).ok() && again.cards == roll.cards,
                "a roll reads the same once written");
}

static void check_result(std::string_view bytes) {
  const Result<bootstrap::RoundResult> result = bootstrap::decode_result(bytes);
  if (!result.ok()) return;
  fuzz::require_text(result->status);
  const Result<bootstrap::RoundResult> again =
      bootstrap::decode_result(bootstrap::encode_result(*result));
  fuzz::require(again.ok() && again->bytes == result->bytes, "a result reads the same");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  [[maybe_unused]] const bootstrap::Frame frame = bootstrap::frame_of(bytes);
  const auto card = bootstrap::decode_card_frame(bytes);
  if (card.ok()) {
    fuzz::require(card->can_wait_ms >= 0, "a time to wait is not negative");
    [[maybe_unused]] const TimeNs until = deadline_after(now_ns(), card->can_wait_ms);
  }
  const Status failure = bootstrap::decode_failure(bytes);
  fuzz::require(!failure.ok(), "a failure is an error");
  fuzz::require_text(failure);
  const auto round = bootstrap::decode_round(bytes);
  fuzz::require_text(round.ok() ? round->status : round.status());
  check_roll(bytes);
  check_result(bytes);
  return 0;
}
