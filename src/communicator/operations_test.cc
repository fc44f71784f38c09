// SPDX-License-Identifier: Apache-2.0
// operations_test.cc: every operation through the communicator, even and uneven, in place and not;
// messages, batches, persistent operations, groups of groups.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "communicator/test_group.h"

namespace ciuic {
namespace {

using Values = std::vector<int64_t>;

MutableBuffer of(std::span<int64_t> values) {
  return {values.data(), static_cast<int64_t>(values.size()), DataType::kInt64, {}};
}

// What rank `from` has for rank `to`, element `i`.
int64_t value(int64_t from, int64_t to, int64_t i) {
  return from * 1'000'000'000 + to * 10'000'000 + i;
}

void fill(std::span<int64_t> part, int from, int to) {
  for (size_t i = 0; i < part.size(); ++i) part[i] = value(from, to, static_cast<int64_t>(i));
}

bool holds(std::span<const int64_t> part, int from, int to) {
  for (size_t i = 0; i < part.size(); ++i) {
    if (part[i] != value(from, to, static_cast<int64_t>(i))) return false;
  }
  return true;
}

Status wrong(const char* operation) { return {StatusCode::kSystem, operation}; }

class Operations : public testing::TestWithParam<int> {
 protected:
  void run(const std::function<Status(Communicator&)>& fn) {
    Ranks ranks = join_all(GetParam());
    for (const Status& status :
         on_all(GetParam(), [&](int rank) { return fn(*ranks[static_cast<size_t>(rank)]); })) {
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
};

constexpr int64_t kCounts[] = {0, 1, 3, 1000, 70'000};

// One part of `count` elements for each rank, as its sender or receiver knows them.
class Parts {
 public:
  explicit Parts(Values counts) : counts_(std::move(counts)) {
    values_.resize(static_cast<size_t>(std::accumulate(counts_.begin(), counts_.end(), 0L)), -1);
  }
  Parts(int size, int64_t count) : Parts(Values(static_cast<size_t>(size), count)) {}

  std::span<int64_t> all() { return values_; }
  const Values& counts() const { return counts_; }
  std::span<int64_t> operator[](int rank) {
    const auto begin =
        static_cast<size_t>(std::accumulate(counts_.begin(), counts_.begin() + rank, 0L));
    return std::span(values_).subspan(begin,
                                      static_cast<size_t>(counts_[static_cast<size_t>(rank)]));
  }

 private:
  Values counts_;
  Values values_;
};

TEST_P(Operations, AllToAll) {
  run([](Communicator& communicator) {
    const int size = communicator.size();
    const int rank = communicator.rank();
    for (const int64_t count : kCounts) {
      Parts input(size, count);
      Parts output(size, count);
      for (int to = 0; to < size; ++to) fill(input[to], rank, to);
      CIUIC_RETURN_IF_ERROR(wait(communicator.all_to_all(of(input.all()), of(output.all()))));
      for (int from = 0; from < size; ++from) {
        if (!holds(output[from], from, rank)) return wrong("all_to_all");
      }
    }
    return Status();
  });
}

TEST_P(Operations, AllToAllOfUnevenParts) {
  run([](Communicator& communicator) {
    const int size = communicator.size();
    const int rank = communicator.rank();
    for (const int64_t most : kCounts) {
      // From rank a to rank b: also nothing, also to itself.
      const auto count = [&](int from, int to) { return most * ((from + 2 * to) % 3) / 2; };
      Values gives;
      Values gets;
      for (int other = 0; other < size; ++other) {
        gives.push_back(count(rank, other));
        gets.push_back(count(other, rank));
      }
      Parts input(gives);
      Parts output(gets);
      for (int to = 0; to < size; ++to) fill(input[to], rank, to);
      CIUIC_RETURN_IF_ERROR(
          wait(communicator.all_to_all_v(of(input.all()), gives, of(output.all()), gets)));
      for (int from = 0; from < size; ++from) {
        if (!holds(output[from], from, rank)) return wrong("all_to_all_v");
      }
    }
    return Status();
  });
}

TEST_P(Operations, ReduceScatter) {
  run([](Communicator& communicator) {
    const int size = communicator.size();
    const int rank = communicator.rank();
    for (const int64_t count : kCounts) {
      for (const bool uneven : {false, true}) {
        for (const bool in_place : {false, true}) {
          Values counts(static_cast<size_t>(size), count);
          for (size_t i = 0; uneven && i < counts.size(); ++i) {
            counts[i] = count * static_cast<int64_t>(i % 3) / 2;
          }
          Parts input(counts);
          for (int to = 0; to < size; ++to) fill(input[to], rank, to);
          Values apart(input[rank].size());
          const std::span<int64_t> output = in_place ? input[rank] : std::span(apart);
          CIUIC_RETURN_IF_ERROR(wait(
              uneven ? communicator.reduce_scatter_v(of(input.all()), counts, of(output),
                                                     ReduceOp::kSum)
                     : communicator.reduce_scatter(of(input.all()), of(output), ReduceOp::kSum)));
          for (size_t i = 0; i < output.size(); ++i) {
            int64_t sum = 0;
            for (int from = 0; from < size; ++from) {
              sum += value(from, rank, static_cast<int64_t>(i));
            }
            if (output[i] != sum) {
              return Status(StatusCode::kSystem, "reduce_scatter of " + std::to_string(count) +
                                                     ", element " + std::to_string(i) +
                                                     (uneven ? ", uneven" : "") +
                                                     (in_place ? ", in place" : ""));
            }
          }
        }
      }
    }
    return Status();
  });
}

// Gathers on all or on one, and scatters from it, in place or not.
TEST_P(Operations, GatherAndScatter) {
  run([](Communicator& communicator) {
    const int size = communicator.size();
    const int rank = communicator.rank();
    for (const int64_t count : kCounts) {
      for (int root = 0; root < size; ++root) {
        for (const int how : {0, 1, 2, 3}) {
          const bool uneven = how % 2 == 1;
          const bool in_place = how >= 2;
          Values counts(static_cast<size_t>(size), count);
          for (size_t i = 0; uneven && i < counts.size(); ++i) {
            counts[i] = count * static_cast<int64_t>((i + 1) % 3) / 2;
          }
          Parts all(counts);
          Values own(static_cast<size_t>(counts[static_cast<size_t>(rank)]));
          fill(own, rank, root);
          const bool is_root = rank == root;
          std::span<int64_t> mine(own);
          if (in_place && is_root) {
            mine = all[rank];
            fill(mine, rank, root);
          }
          const MutableBuffer gathered = is_root ? of(all.all()) : MutableBuffer();
          CIUIC_RETURN_IF_ERROR(wait(
              uneven ? communicator.gather_v(of(mine), gathered, is_root ? counts : Values(), root)
                     : communicator.gather(of(mine), gathered, root)));
          for (int from = 0; is_root && from < size; ++from) {
            if (!holds(all[from], from, root)) return wrong("gather");
          }
          // And back: each rank gets what it gave.
          std::fill(own.begin(), own.end(), -1);
          mine = in_place && is_root ? all[rank] : std::span(own);
          CIUIC_RETURN_IF_ERROR(wait(
              uneven ? communicator.scatter_v(gathered, is_root ? counts : Values(), of(mine), root)
                     : communicator.scatter(gathered, of(mine), root)));
          if (!holds(mine, rank, root)) return wrong("scatter");
          if (root > 0) continue;
          Parts everywhere(counts);
          CIUIC_RETURN_IF_ERROR(
              wait(uneven ? communicator.all_gather_v(of(mine), of(everywhere.all()), counts)
                          : communicator.all_gather(of(mine), of(everywhere.all()))));
          for (int from = 0; from < size; ++from) {
            if (!holds(everywhere[from], from, root)) return wrong("all_gather");
          }
        }
      }
    }
    return Status();
  });
}

TEST_P(Operations, SendToAllAndReceiveFromAny) {
  run([](Communicator& communicator) {
    const int size = communicator.size();
    const int rank = communicator.rank();
    for (const int64_t count : kCounts) {
      Parts input(size, count);
      std::vector<Work> works;
      for (int to = 0; to < size; ++to) {
        fill(input[to], rank, to);
        Result<Work> work = communicator.send(of(input[to]), to, 7);
        if (!work.ok()) return work.status();
        works.push_back(*work);
      }
      std::vector<bool> came(static_cast<size_t>(size), false);
      for (int i = 0; i < size; ++i) {
        Values output(static_cast<size_t>(count));
        Result<Work> work = communicator.recv(of(output), kAnySource, kAnyTag);
        if (!work.ok()) return work.status();
        CIUIC_RETURN_IF_ERROR(work->wait());
        const int from = work->source();
        if (from < 0 || came[static_cast<size_t>(from)] || work->tag() != 7) return wrong("recv");
        came[static_cast<size_t>(from)] = true;
        if (!holds(output, from, rank)) return wrong("recv");
      }
      for (Work& work : works) CIUIC_RETURN_IF_ERROR(work.wait());
      CIUIC_RETURN_IF_ERROR(wait(communicator.barrier()));
    }
    return Status();
  });
}

// Everybody first sends to the right, then receives from the left, and far more than is eager.
TEST_P(Operations, BatchesThatWouldDeadlockOneByOne) {
  run([](Communicator& communicator) {
    const int size = communicator.size();
    const int rank = communicator.rank();
    const int right = (rank + 1) % size;
    const int left = (rank + size - 1) % size;
    Values sent(300'000);
    Values received(300'000);
    Values sum(1000, rank);
    fill(sent, rank, right);
    const std::array calls{Call::send(of(sent), right, 1),
                           Call::all_reduce(of(sum), of(sum), ReduceOp::kSum),
                           Call::recv(of(received), left, 1), Call::barrier()};
    CIUIC_RETURN_IF_ERROR(wait(communicator.submit(calls)));
    if (!holds(received, left, rank)) return wrong("batch");
    return sum == Values(1000, size * (size - 1) / 2) ? Status() : wrong("batch");
  });
}

TEST_P(Operations, ABatchWithOneWrongCallSendsNothing) {
  run([](Communicator& communicator) {
    Values values(8);
    const std::array calls{Call::all_reduce(of(values), of(values), ReduceOp::kSum),
                           Call::broadcast(of(values), communicator.size())};
    EXPECT_EQ(wait(communicator.submit(calls)).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(wait(communicator.submit(std::span<const Call>())).code(), StatusCode::kOk);
    return wait(communicator.barrier());  // the ranks still agree on what comes next
  });
}

TEST_P(Operations, PersistentOnesAreStartedAgainAndAgain) {
  run([](Communicator& communicator) {
    const int size = communicator.size();
    const int rank = communicator.rank();
    const int right = (rank + 1) % size;
    const int left = (rank + size - 1) % size;
    Values sum(100);
    Values sent(5);
    Values received(5);
    const std::array calls{Call::all_reduce(of(sum), of(sum), ReduceOp::kSum),
                           Call::send(of(sent), right, 2), Call::recv(of(received), left, 2)};
    Result<PersistentOperation> operation = communicator.persistent(calls);
    if (!operation.ok()) return operation.status();
    for (int round = 0; round < 50; ++round) {
      std::fill(sum.begin(), sum.end(), rank + round);
      fill(sent, rank, round);
      Result<Work> work = operation->start();
      if (!work.ok()) return work.status();
      CIUIC_RETURN_IF_ERROR(work->wait());
      if (sum != Values(100, size * (size - 1) / 2 + size * round)) return wrong("persistent");
      if (!holds(received, left, round)) return wrong("persistent");
    }
    if (size == 1) return Status();
    // Until all have started it, it has not ended here.
    Result<Work> work = operation->start();
    if (!work.ok()) return work.status();
    if (!work->done() && rank == 0) {
      EXPECT_EQ(operation->start().status().code(), StatusCode::kInvalidArgument);
    }
    return work->wait();
  });
}

TEST_P(Operations, GroupsOfGroups) {
  run([](Communicator& communicator) {
    const int size = communicator.size();
    const int rank = communicator.rank();
    // By color, the higher key first.
    auto half = communicator.split(rank % 2, -rank);
    if (!half.ok()) return half.status();
    const int members = (size + 1 - rank % 2) / 2;
    EXPECT_EQ((*half)->size(), members);
    EXPECT_EQ((*half)->rank(), members - 1 - rank / 2);
    Values ranks(static_cast<size_t>(members));
    Values own{rank};
    CIUIC_RETURN_IF_ERROR(wait((*half)->all_gather(of(own), of(ranks))));
    for (int i = 0; i < members; ++i) {
      EXPECT_EQ(ranks[static_cast<size_t>(i)], 2 * (members - 1 - i) + rank % 2);
    }
    auto none = communicator.split(rank == 0 ? 3 : Communicator::kNoColor, 0);
    if (!none.ok()) return none.status();
    EXPECT_EQ(*none != nullptr, rank == 0);
    if (size == 1) return Status();
    // Only its members call; a group of a group; both are used in turn, and live by themselves.
    if (rank >= 2) return Status();
    auto pair = communicator.subgroup(std::array{1, 0});
    if (!pair.ok()) return pair.status();
    EXPECT_EQ((*pair)->rank(), 1 - rank);
    half->reset();
    auto alone = (*pair)->split(rank, 0);
    if (!alone.ok()) return alone.status();
    EXPECT_EQ((*alone)->size(), 1);
    for (int i = 0; i < 20; ++i) {
      own[0] = rank;
      CIUIC_RETURN_IF_ERROR(wait((*pair)->all_reduce(of(own), of(own), ReduceOp::kSum)));
      EXPECT_EQ(own[0], 1);
    }
    return Status();
  });
}

INSTANTIATE_TEST_SUITE_P(OfRanks, Operations, testing::Values(1, 2, 3, 5));

TEST(Subgroup, RefusesMembersThatCannotBe) {
  Ranks ranks = join_all(2);
  for (const std::vector<int>& members :
       {std::vector<int>{0, 2}, {0, -1}, {0, 0}, {1}, std::vector<int>{}}) {
    EXPECT_EQ(ranks[0]->subgroup(members).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(Subgroup, WhoDoesNotCallIsNamedAndTheGroupEnds) {
  Ranks ranks = join_all(3);
  const Status status = ranks[1]->subgroup(std::array{0, 1}, /*timeout_ms=*/200).status();
  EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.message();
  EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.message();
  EXPECT_FALSE(wait(ranks[2]->barrier()).ok());
}

// What one gives is not what the other expects.
TEST(Uneven, CountsThatDifferAreNamedOnAllRanks) {
  struct Case {
    const char* name;
    std::function<Result<Work>(Communicator&, std::span<int64_t>)> call;
    const char* says;
  };
  const Case cases[] = {
      {"all_to_all_v",
       [](Communicator& each, std::span<int64_t> memory) {
         const int64_t to_one = each.rank() == 0 ? 7 : 5;  // rank 1 expects 5
         return each.all_to_all_v(of(memory.first(to_one + 5)),
                                  each.rank() == 0 ? Values{5, 7} : Values{5, 5},
                                  of(memory.last(10)), {5, 5});
       },
       "rank 0 gives 7 elements, rank 1 expects 5"},
      {"gather_v",
       [](Communicator& each, std::span<int64_t> memory) {
         return each.gather_v(of(memory.first(each.rank() == 0 ? 5 : 6)), of(memory.last(10)),
                              {5, 5}, 0);
       },
       "rank 1 gives 6 elements, rank 0 expects 5"},
      {"scatter_v",
       [](Communicator& each, std::span<int64_t> memory) {
         return each.scatter_v(of(memory.first(10)), {5, 5},
                               of(memory.last(each.rank() == 0 ? 5 : 0)), 0);
       },
       "rank 0 gives 5 elements, rank 1 expects 0"},
      {"all_gather_v",
       [](Communicator& each, std::span<int64_t> memory) {
         return each.all_gather_v(of(memory.first(5)), of(memory.last(10)),
                                  {5, each.rank() == 0 ? 5 : 5});
       },
       nullptr},
      {"reduce_scatter_v",
       [](Communicator& each, std::span<int64_t> memory) {
         const int64_t first = each.rank() == 0 ? 4 : 5;
         return each.reduce_scatter_v(of(memory.first(first + 5)), {first, 5},
                                      of(memory.last(each.rank() == 0 ? 4 : 5)), ReduceOp::kSum);
       },
       "reduce_scatter_v(int64, "},
  };
  for (const Case& each : cases) {
    Ranks ranks = join_all(2);
    const std::vector<Status> statuses = on_all(2, [&](int rank) {
      Values memory(40);
      Communicator& communicator = *ranks[static_cast<size_t>(rank)];
      const Status status = wait(each.call(communicator, memory));
      return status.ok() ? wait(communicator.barrier()) : status;
    });
    for (const Status& status : statuses) {
      if (each.says == nullptr) {
        EXPECT_TRUE(status.ok()) << each.name << status.message();
        continue;
      }
      EXPECT_EQ(status.code(), StatusCode::kMismatch) << each.name << ": " << status.message();
      EXPECT_NE(status.message().find(each.says), std::string::npos) << status.message();
    }
  }
}

TEST(Messages, OfAnotherCountAreAMismatchOnAllRanks) {
  for (const size_t count : {4u, 40'000u}) {
    Ranks ranks = join_all(3);
    const std::vector<Status> statuses = on_all(3, [&](int rank) {
      Communicator& communicator = *ranks[static_cast<size_t>(rank)];
      Values values(rank == 0 ? count : count + 1);
      Status status;
      if (rank == 0) status = wait(communicator.send(of(values), 1, 3));
      if (rank == 1) status = wait(communicator.recv(of(values), 0, 3));
      return status.ok() ? wait(communicator.barrier()) : status;
    });
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.message();
      EXPECT_EQ(status.message(), statuses[0].message());
    }
  }
}

// Making a group of a part sends messages, which are not for a recv that would take any.
TEST(Messages, OfTheLibraryAreNotForARecvOfAnyTag) {
  Ranks ranks = join_all(3);
  const std::vector<Status> statuses = on_all(3, [&](int rank) {
    Communicator& communicator = *ranks[static_cast<size_t>(rank)];
    Values received(4);
    std::optional<Result<Work>> work;
    if (rank > 0) work = communicator.recv(of(received), kAnySource, kAnyTag);
    auto part = communicator.split(0, 0);
    if (!part.ok()) return part.status();
    CIUIC_RETURN_IF_ERROR(wait((*part)->barrier()));
    Values sent{1, 2, 3, 4};
    for (int to = 1; rank == 0 && to < 3; ++to) {
      CIUIC_RETURN_IF_ERROR(wait(communicator.send(of(sent), to, kMaxTag)));
    }
    if (!work) return Status();
    CIUIC_RETURN_IF_ERROR(wait(std::move(*work)));
    return received == sent ? Status() : wrong("recv");
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Messages, AnyTagAboveTheUsersIsRefused) {
  Ranks ranks = join_all(1);
  Values values(4);
  EXPECT_EQ(ranks[0]->send(of(values), 0, kMaxTag).status().code(), StatusCode::kOk);
  EXPECT_EQ(ranks[0]->recv(of(values), 0, kMaxTag)->wait().code(), StatusCode::kOk);
  for (const int tag : {kMaxTag + 1, -2}) {
    EXPECT_EQ(ranks[0]->send(of(values), 0, tag).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(ranks[0]->recv(of(values), 0, tag).status().code(), StatusCode::kInvalidArgument);
    for (const Call& call : {Call::send(of(values), 0, tag), Call::recv(of(values), 0, tag)}) {
      EXPECT_EQ(ranks[0]->persistent(std::span(&call, 1)).status().code(),
                StatusCode::kInvalidArgument);
    }
  }
}

}  // namespace
}  // namespace ciuic
