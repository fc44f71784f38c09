// SPDX-License-Identifier: Apache-2.0
// test_group.h: groups whose ranks are threads of one process, for tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "bootstrap/memory_store.h"
#include "ciuic/communicator.h"

namespace ciuic {

using Ranks = std::vector<std::unique_ptr<Communicator>>;

inline std::vector<Status> on_all(int size, const std::function<Status(int)>& fn) {
  std::vector<Status> statuses(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] { statuses[static_cast<size_t>(rank)] = fn(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

inline CommunicatorOptions options_of(int rank, int size, std::shared_ptr<Store> store) {
  CommunicatorOptions options;
  options.rank = rank;
  options.size = size;
  options.store = std::move(store);
  options.timeout_ms = 60'000;
  return options;
}

inline Ranks join_all(int size) {
  auto store = std::make_shared<bootstrap::MemoryStore>();
  Ranks ranks(static_cast<size_t>(size));
  for (const Status& status : on_all(size, [&](int rank) {
         auto made = Communicator::create(options_of(rank, size, store));
         if (made.ok()) ranks[static_cast<size_t>(rank)] = std::move(*made);
         return made.status();
       })) {
    EXPECT_TRUE(status.ok()) << status.message();
  }
  return ranks;
}

inline Status wait(Result<Work> work) { return work.ok() ? work->wait() : work.status(); }

}  // namespace ciuic
