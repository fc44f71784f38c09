// SPDX-License-Identifier: Apache-2.0
// messages.h: what rank 0 and the others say to each other during the join, one frame each.
//
//   a rank to rank 0   kCard    milliseconds it can wait (64 bits), its card
//                      kRound   number (32 bits), status code, message, bytes
//   rank 0 to a rank   kWelcome nothing; the handshake has been accepted
//                      kRoll    the roll
//                      kFailure status code, message; the join is over
//                      kResult  number (32 bits), status code, message, bytes of every rank
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "bootstrap/card.h"
#include "ciuic/status.h"

namespace ciuic::bootstrap {

enum class Frame : uint8_t {
  kCard = 1,
  kRound = 2,
  kWelcome = 3,
  kRoll = 4,
  kFailure = 5,
  kResult = 6,
};

// What a connection of this folder is for (security::Identity::purpose); the store's is 1.
inline constexpr uint32_t kJoinPurpose = 2;
inline constexpr uint32_t kProofPurpose = 3;

inline constexpr int kMaxRanks = 65'536;
inline constexpr size_t kMaxGatheredBytes = 64 * 1024;  // of one rank, in one round
inline constexpr size_t kMaxTuningBytes = 256 * 1024;
inline constexpr size_t kMaxFrameToRank = 256u << 20;  // the roll of very many
inline constexpr size_t kMaxFrameToRank0 = kMaxGatheredBytes + 4096;

// When rank 0 has to decide, so that its word still reaches those who wait until `deadline`.
constexpr TimeNs answer_by(TimeNs deadline, TimeNs now) {
  if (deadline == kNever || deadline <= now) return deadline;
  return deadline - std::min<TimeNs>((deadline - now) / 4, 500'000'000);
}

// What every rank of a group knows after the join.
struct Roll {
  std::vector<Card> cards;  // by rank
  uint32_t epoch = 0;       // of this incarnation of the group
  uint32_t group = 0;       // a hash of the group's name
  std::string job;          // random; names this incarnation in handshakes
  std::string secret;
  std::string tuning;  // rank 0's
  bool tls = false;    // whether the ranks' connections go by TLS
};

struct RoundResult {
  uint32_t round = 0;
  Status status;
  std::vector<std::string> bytes;
};

std::string encode_card_frame(int64_t can_wait_ms, const Card& card);
std::string encode_failure(const Status& status);
std::string encode_roll(const Roll& roll);  // without job, group, secret and tls, which all know
std::string encode_round(uint32_t round, const Result<std::string>& mine);
std::string encode_result(const RoundResult& result);

Frame frame_of(std::string_view bytes);

// kInvalidArgument: not that frame, or malformed; kMismatch: decode_card()'s.
struct CardFrame {
  int64_t can_wait_ms = 0;
  Card card;
};
Result<CardFrame> decode_card_frame(std::string_view bytes);
Status decode_failure(std::string_view bytes);
Status decode_roll(std::string_view bytes, Roll* roll);
struct Round {
  uint32_t round = 0;
  Status status;
  std::string bytes;
};
Result<Round> decode_round(std::string_view bytes);
Result<RoundResult> decode_result(std::string_view bytes);

}  // namespace ciuic::bootstrap
