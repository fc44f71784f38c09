// SPDX-License-Identifier: Apache-2.0
// messages.cc: frames of the join as bytes.

#include "bootstrap/messages.h"

#include <algorithm>

#include "base/printable.h"
#include "bootstrap/bytes.h"

namespace ciuic::bootstrap {

static constexpr size_t kMaxMessage = 16 * 1024;

static ByteWriter begin(Frame frame) {
  ByteWriter out;
  out.u8(static_cast<uint8_t>(frame));
  return out;
}

static void write_status(ByteWriter* out, const Status& status) {
  out->u8(static_cast<uint8_t>(status.code()));
  out->text(std::string_view(status.message()).substr(0, kMaxMessage));
}

static Status read_status(ByteReader* in) {
  const auto code = static_cast<StatusCode>(
      std::min<uint8_t>(in->u8(), static_cast<uint8_t>(StatusCode::kSystem)));
  const std::string message = in->text(kMaxMessage);
  return code == StatusCode::kOk ? Status() : Status(code, printable(message));
}

static Status malformed() {
  return Status(StatusCode::kInvalidArgument, "the peer said something of no known form");
}

static bool is_frame(ByteReader* in, Frame frame) {
  return in->u8() == static_cast<uint8_t>(frame);
}

Frame frame_of(std::string_view bytes) {
  return static_cast<Frame>(bytes.empty() ? 0 : bytes.front());
}

std::string encode_card_frame(int64_t can_wait_ms, const Card& card) {
  return begin(Frame::kCard).u64(static_cast<uint64_t>(can_wait_ms)).raw(encode(card)).take();
}

Result<CardFrame> decode_card_frame(std::string_view bytes) {
  ByteReader in(bytes);
  CardFrame frame;
  if (!is_frame(&in, Frame::kCard)) return malformed();
  frame.can_wait_ms = static_cast<int64_t>(in.u64() & INT64_MAX);
  if (in.failed()) return malformed();
  Result<Card> card = decode_card(in.rest());
  if (!card.ok()) return card.status();
  frame.card = std::move(*card);
  return frame;
}

std::string encode_failure(const Status& status) {
  ByteWriter out = begin(Frame::kFailure);
  write_status(&out, status);
  return out.take();
}

Status decode_failure(std::string_view bytes) {
  ByteReader in(bytes);
  if (!is_frame(&in, Frame::kFailure)) return malformed();
  const Status status = read_status(&in);
  return in.complete() && !status.ok() ? status : malformed();
}

std::string encode_roll(const Roll& roll) {
  ByteWriter out = begin(Frame::kRoll);
  out.u32(roll.epoch).text(roll.tuning).u32(static_cast<uint32_t>(roll.cards.size()));
  for (const Card& card : roll.cards) out.text(encode(card));
  return out.take();
}

Status decode_roll(std::string_view bytes, Roll* roll) {
  ByteReader in(bytes);
  if (!is_frame(&in, Frame::kRoll)) return malformed();
  roll->epoch = in.u32();
  roll->tuning = in.text(kMaxTuningBytes);
  roll->cards.resize(in.count(/*item_bytes=*/64, kMaxRanks));
  const int size = static_cast<int>(roll->cards.size());
  for (int rank = 0; rank < size; ++rank) {
    Result<Card> card = decode_card(in.text(kMaxCardBytes));
    if (!card.ok()) return card.status();
    // Everybody finds cards by rank, and ranks by card.
    if (card->rank != rank || card->size != size) return malformed();
    roll->cards[static_cast<size_t>(rank)] = std::move(*card);
  }
  return in.complete() ? Status() : malformed();
}

std::string encode_round(uint32_t round, const Result<std::string>& mine) {
  ByteWriter out = begin(Frame::kRound);
  out.u32(round);
  write_status(&out, mine.status());
  out.text(mine.ok() ? std::string_view(*mine) : std::string_view());
  return out.take();
}

Result<Round> decode_round(std::string_view bytes) {
  ByteReader in(bytes);
  Round round;
  if (!is_frame(&in, Frame::kRound)) return malformed();
  round.round = in.u32();
  round.status = read_status(&in);
  round.bytes = in.text(kMaxGatheredBytes);
  if (!in.complete()) return malformed();
  return round;
}

std::string encode_result(const RoundResult& result) {
  ByteWriter out = begin(Frame::kResult);
  out.u32(result.round);
  write_status(&out, result.status);
  out.u32(static_cast<uint32_t>(result.bytes.size()));
  for (const std::string& bytes : result.bytes) out.text(bytes);
  return out.take();
}

Result<RoundResult> decode_result(std::string_view bytes) {
  ByteReader in(bytes);
  RoundResult result;
  if (!is_frame(&in, Frame::kResult)) return malformed();
  result.round = in.u32();
  result.status = read_status(&in);
  result.bytes.resize(in.count(/*item_bytes=*/4, kMaxRanks));
  for (std::string& of_rank : result.bytes) of_rank = in.text(kMaxGatheredBytes);
  if (!in.complete()) return malformed();
  return result;
}

}  // namespace ciuic::bootstrap
