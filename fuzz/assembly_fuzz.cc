// SPDX-License-Identifier: Apache-2.0
// assembly_fuzz.cc: rounds of the join with ranks that have proven the secret and then say
// anything; rank 0 among them, whose word all take.

#include <sys/socket.h>

#include <memory>
#include <vector>

#include "bootstrap/assembly.h"
#include "bootstrap/prove.h"
#include "input.h"
#include "sockets.h"

using namespace ciuic;
using bootstrap::Assembly;
using bootstrap::Channel;

namespace {

constexpr int kSize = 3;

bootstrap::Roll roll_for(bool one_host) {
  bootstrap::Roll roll;
  for (int rank = 0; rank < kSize; ++rank) {
    bootstrap::Card card;
    card.rank = rank;
    card.size = kSize;
    card.host_name = "host";
    card.host_id = one_host ? "host" : std::to_string(rank);
    card.machine_id = card.host_id;
    roll.cards.push_back(card);
  }
  roll.job = "fuzz";
  roll.secret = fuzz::kSecret;
  return roll;
}

// A proven channel, at whose other end the input has said all that it will say.
std::unique_ptr<Channel> channel_with(std::string_view said, posix::UniqueFd* other) {
  fuzz::SocketPair sockets = fuzz::socket_pair();
  auto peer = security::Handshake::connecting(fuzz::kSecret, fuzz::identity(1, 0));
  auto channel = std::make_unique<Channel>(
      std::move(sockets.ours), security::Handshake::accepting(fuzz::kSecret, fuzz::identity(-1, 0)),
      70'000);
  for (int move = 0; move < 4; ++move) {
    fuzz::shake(sockets.theirs, &peer);
    fuzz::require(channel->progress().ok(), "an honest handshake");
  }
  fuzz::say(sockets.theirs, said);
  ::shutdown(sockets.theirs.get(), SHUT_WR);
  *other = std::move(sockets.theirs);
  return channel;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const int rank = input.below(kSize);
  const bool proves = input.flag();
  std::vector<std::unique_ptr<Channel>> channels;
  std::vector<posix::UniqueFd> others(kSize);
  if (rank == 0) {
    channels.emplace_back();
    channels.push_back(channel_with(input.bytes(input.u16()), &others[1]));
    channels.push_back(channel_with(input.rest(), &others[2]));
  } else {
    channels.push_back(channel_with(input.rest(), &others[0]));
  }
  // Ranks that are not host leaders dial nobody, so no connection is waited for.
  bootstrap::Roll roll = roll_for(!proves);
  if (rank != 0) roll.cards[static_cast<size_t>(rank)].host_id = roll.cards[0].host_id;
  Assembly assembly(rank, std::move(roll), std::move(channels));
  const TimeNs deadline = deadline_after(now_ns(), 10'000);
  if (proves && rank != 0) {
    const auto reachable = bootstrap::prove_addresses(&assembly, {}, deadline);
    if (reachable.ok()) [[maybe_unused]]
      const auto all = reachable->addresses(rank, 0);
  }
  for (int round = 0; round < 4; ++round) {
    const auto gathered = assembly.gather(std::string("mine"), deadline);
    fuzz::require_text(gathered.status());
    if (gathered.ok()) fuzz::require(gathered->size() == kSize, "an answer from every rank");
  }
  return 0;
}
