// SPDX-License-Identifier: Apache-2.0
// card.h: what a rank tells the others about itself at the join.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ciuic/status.h"
#include "drivers/posix/address.h"

namespace ciuic::bootstrap {

// Bits of Card::transports.
inline constexpr uint32_t kOffersShm = 1;
inline constexpr uint32_t kOffersTcp = 2;

inline constexpr size_t kMaxReason = 1024;

// What a rank computes on, where its group may use GPUs.
struct GpuFacts {
  std::string bus_id;    // of its GPU, as CUDA names it: "0000:3b:00.0"; "": it has none
  int nccl_version = 0;  // 22304 is 2.23.4; 0: it has none
  std::string why_not;   // which of the two is missing, and why; kMaxReason at most

  bool operator==(const GpuFacts&) const = default;
};

struct Card {
  int rank = -1;
  int size = 0;
  uint64_t uid = 0;  // random: two processes under one rank differ in it
  int pid = 0;
  uint64_t start_ticks = 0;
  std::string host_name;
  std::string machine_id;  // topology::Host
  std::string host_id;
  int cores = 1;
  std::string unix_name;  // of the abstract socket for pairing; empty where shm is not offered
  std::vector<posix::Address> addresses;  // of the acceptor, for other machines, the best first
  std::vector<posix::Address> loopback;   // of the acceptor, for this machine
  uint32_t transports = 0;
  std::string library_version;
  uint32_t wire_version = 0;
  GpuFacts gpu;
  // Options that must be the same on all ranks, as (name, value).
  std::vector<std::pair<std::string, std::string>> agreed;

  // Before shrink(), or -1. Not told to others: who comes together then knows it of all.
  int former_rank = -1;

  bool operator==(const Card&) const = default;

  // "rank 3 (host node7, process 4711)"; a former rank is named, too.
  std::string who() const;
};

// "rank 3", or "rank 3 (rank 5 of the group before)".
std::string rank_name(int rank, int former_rank);

inline constexpr size_t kMaxCardBytes = 16 * 1024;

// What a card holds beyond a limit of decode_card() is left out.
std::string encode(const Card& card);

// kMismatch: a card of another version of the library, both named. kInvalidArgument: no card.
Result<Card> decode_card(std::string_view bytes);

// Ok where the two may be in one group. kMismatch names both ranks and both values.
Status compare(const Card& a, const Card& b);

}  // namespace ciuic::bootstrap
