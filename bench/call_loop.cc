// SPDX-License-Identifier: Apache-2.0
// call_loop.cc: two ranks that all-reduce eight bytes, as often as is said: what tools/call_cost.py
// counts the instructions of. One thread calls for both, so that no call waits for a scheduler.

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "bootstrap/memory_store.h"
#include "ciuic/communicator.h"

namespace {

using ciuic::Communicator;
using ciuic::Result;
using ciuic::Status;
using ciuic::Work;

constexpr int kRanks = 2;

struct Rank {
  std::unique_ptr<Communicator> communicator;
  double value = 1;
};

Status create(std::array<Rank, kRanks>* ranks) {
  auto store = std::make_shared<ciuic::bootstrap::MemoryStore>();
  std::array<Status, kRanks> statuses;
  std::array<std::thread, kRanks> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads[rank] = std::thread([&, rank] {
      ciuic::CommunicatorOptions options;
      options.rank = rank;
      options.size = kRanks;
      options.store = store;
      auto communicator = Communicator::create(options);
      statuses[rank] = communicator.status();
      if (communicator.ok()) (*ranks)[rank].communicator = std::move(*communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return {};
}

Status call(std::array<Rank, kRanks>* ranks) {
  std::array<Work, kRanks> works;
  for (int rank = 0; rank < kRanks; ++rank) {
    const ciuic::MutableBuffer buffer{&(*ranks)[rank].value, 1, ciuic::DataType::kFloat64, {}};
    Result<Work> work =
        (*ranks)[rank].communicator->all_reduce(buffer, buffer, ciuic::ReduceOp::kMax);
    if (!work.ok()) return work.status();
    works[rank] = std::move(*work);
  }
  for (Work& work : works) {
    if (Status status = work.wait(); !status.ok()) return status;
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const int calls = argc == 2 ? std::atoi(argv[1]) : 0;
  if (calls <= 0) {
    std::fprintf(stderr, "usage: call_loop CALLS\n");
    return 2;
  }
  std::array<Rank, kRanks> ranks;
  Status status = create(&ranks);
  for (int i = 0; status.ok() && i < calls; ++i) status = call(&ranks);
  if (!status.ok()) std::fprintf(stderr, "call_loop: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
