// SPDX-License-Identifier: Apache-2.0
// exchange_fixture.h: ranks as threads, for the tests of this folder.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/exchange.h"
#include "ciuic/version.h"
#include "drivers/posix/process.h"

namespace ciuic::bootstrap::testing {

inline Card card_for(int rank, int size) {
  Card card;
  card.rank = rank;
  card.size = size;
  card.uid = *posix::random_uint64();
  card.pid = 1000 + rank;
  card.host_name = "here";
  card.machine_id = "machine";
  card.host_id = "machine";
  card.loopback = {{"127.0.0.1", 0}};
  card.transports = kOffersTcp;
  card.library_version = CIUIC_VERSION;
  card.wire_version = 1;
  card.agreed = {{"buffer_size", "67108864"}};
  return card;
}

inline ExchangeOptions options_for(int64_t timeout_ms) {
  ExchangeOptions options;
  options.deadline = deadline_after(now_ns(), timeout_ms);
  options.tuning = "table";
  return options;
}

using Joined = Result<std::unique_ptr<Assembly>>;

// Runs `body(i)` on a thread each, for i in [0, count).
inline void run_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

// Each card joins on a thread of its own, at a store of its own.
inline std::vector<Joined> join_all(const std::vector<Card>& cards,
                                    const std::vector<ExchangeOptions>& options,
                                    const std::function<std::shared_ptr<Store>()>& store) {
  std::vector<Joined> joined;
  for (size_t i = 0; i < cards.size(); ++i) joined.emplace_back(Status());
  run_threads(static_cast<int>(cards.size()), [&](int i) {
    const auto index = static_cast<size_t>(i);
    const std::shared_ptr<Store> own = store();
    joined[index] = exchange_cards(own.get(), cards[index], options[index]);
  });
  return joined;
}

inline std::vector<Card> cards_for(int size) {
  std::vector<Card> cards;
  for (int rank = 0; rank < size; ++rank) cards.push_back(card_for(rank, size));
  return cards;
}

}  // namespace ciuic::bootstrap::testing
