// SPDX-License-Identifier: Apache-2.0
// messages_test.cc: sends and receives between ranks, over simulated links, in random order.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/point_to_point.h"
#include "engine/work_state.h"
#include "memory/staging_pool.h"
#include "plan/registry.h"
#include "sim/random.h"
#include "sim/sim_network.h"

namespace ciuic::sim {
namespace {

using engine::Request;
using engine::RequestKind;

constexpr TimeNs kForever = 1'000'000'000'000;

// A call that has been made, and its memory.
struct Made {
  Request request;
  std::vector<int32_t> memory;
  engine::WorkState* work = nullptr;
};

Request request_of(RequestKind kind, int peer, int tag, int64_t count) {
  Request request;
  request.kind = kind;
  request.operation = kind == RequestKind::kSend ? "send" : "recv";
  request.peer = peer;
  request.tag = tag;
  request.count = count;
  request.dtype = DataType::kInt32;
  request.timeout_ms = 1'000'000;
  request.deadline = kForever;
  return request;
}

Request barrier(int ranks, int rank) {
  Request request;
  request.operation = "barrier";
  request.plan = std::make_shared<plan::Plan>(
      plan::make(plan::Operation::kBarrier, plan::Algorithm::kDissemination,
                 plan::Layout::one_host(ranks), rank, /*root=*/0));
  request.fingerprint = 1;
  request.deadline = kForever;
  return request;
}

// Engines of one group whose links are simulated.
class Ranks {
 public:
  Ranks(uint64_t seed, const std::vector<int>& host_of, NetworkOptions options = {})
      : network_(seed, static_cast<int>(host_of.size()), options), random_(seed) {
    std::vector<int> processes;
    for (size_t rank = 0; rank < host_of.size(); ++rank) {
      processes.push_back(static_cast<int>(rank));
      staging_.push_back(std::make_unique<memory::StagingPool>(size_t{1} << 26));
      engines_.push_back(std::make_unique<engine::Engine>(staging_.back().get()));
    }
    network_.connect(/*group=*/1, /*epoch=*/1, processes, host_of);
    for (size_t rank = 0; rank < host_of.size(); ++rank) {
      engine::GroupConfig config;
      config.id = config.epoch = 1;
      config.rank = static_cast<int>(rank);
      config.links = network_.take_links(config.rank);
      groups_.push_back(engines_[rank]->add_group(std::move(config)));
    }
    made_.resize(host_of.size());
    asks_at_.resize(host_of.size(), -1);
  }
  ~Ranks() {
    for (auto& calls : made_) {
      for (auto& call : calls) call->work->release();
    }
  }

  int size() const { return static_cast<int>(engines_.size()); }
  SimNetwork* network() { return &network_; }

  Made* call(int rank, Request request, std::vector<int32_t> memory) {
    made_[rank].push_back(std::make_unique<Made>());
    Made* made = made_[rank].back().get();
    made->memory = std::move(memory);
    auto* bytes = reinterpret_cast<std::byte*>(made->memory.data());
    request.input = request.output = bytes;
    made->request = request;
    made->work = engines_[rank]->submit(groups_[rank], std::move(request), network_.now());
    network_.wake(rank, network_.now());
    return made;
  }

  // Steps until all calls have ended, or nothing moves any more. `more(rank)` makes further calls.
  template <typename More>
  void run(More more) {
    for (int rank = 0; rank < size(); ++rank) network_.wake(rank, network_.now());
    int rank = 0;
    while (network_.next(&rank)) {
      network_.stepping(rank);
      const bool called = more(rank);
      const bool moved = engines_[rank]->step(network_.now());
      if (!moved && !called) engines_[rank]->before_sleep();
      // One wake of its own at a time, or each would beget more.
      if ((moved || called) && asks_at_[rank] <= network_.now()) {
        asks_at_[rank] = network_.now() + random_.between(1, 3000);
        network_.wake(rank, asks_at_[rank]);
      }
      const TimeNs deadline = engines_[rank]->next_deadline();
      if (deadline < kForever) network_.wake(rank, std::max(deadline, network_.now() + 1));
    }
  }
  void run() {
    run([](int) { return false; });
  }

  bool all_ended() const {
    return std::all_of(engines_.begin(), engines_.end(),
                       [](const auto& engine) { return engine->active() == 0; });
  }
  size_t staging(int rank) const { return staging_[rank]->held(); }
  const std::vector<std::unique_ptr<Made>>& made(int rank) const { return made_[rank]; }

 private:
  SimNetwork network_;
  Random random_;
  std::vector<std::unique_ptr<memory::StagingPool>> staging_;
  std::vector<std::unique_ptr<engine::Engine>> engines_;
  std::vector<engine::Group*> groups_;
  std::vector<std::vector<std::unique_ptr<Made>>> made_;
  std::vector<TimeNs> asks_at_;
};

std::vector<int> hosts(int ranks, int how) {
  std::vector<int> host_of;
  for (int rank = 0; rank < ranks; ++rank) host_of.push_back(rank * how / 2);
  return host_of;
}

std::vector<int32_t> message(int from, int number, int64_t count) {
  std::vector<int32_t> memory(static_cast<size_t>(count));
  for (size_t i = 0; i < memory.size(); ++i) {
    memory[i] = from * 1'000'000 + number * 10'000 + static_cast<int>(i % 9'000);
  }
  return memory;
}

constexpr int kAnySourceTag = 7;  // received from whoever sends it, 5 elements each

// A rank's calls, in the order in which it makes them.
struct Script {
  std::vector<Request> calls;
  std::vector<std::vector<int32_t>> memory;
  std::vector<std::vector<int32_t>> expected;  // empty: looked at otherwise
};

// Sends to all, in lists of which the order between lists is drawn; what a (receiver, sender, tag)
// has in order, the receiver receives in order, and else in any.
std::vector<Script> draw(Random* random, int ranks) {
  std::vector<Script> scripts(ranks);
  std::vector<std::vector<std::vector<Request>>> lists(ranks);
  std::vector<std::vector<std::vector<std::pair<std::vector<int32_t>, std::vector<int32_t>>>>>
      memories(ranks);
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      std::map<int, size_t> receive_lists;
      lists[from].emplace_back();
      memories[from].emplace_back();
      const size_t sends = lists[from].size() - 1;
      const int messages = random->between(0, 16);
      for (int number = 0; number < messages; ++number) {
        const int tag = random->between(0, 9) == 0 ? kAnySourceTag : random->between(0, 2);
        const int64_t counts[] = {0, 1, 7, 1000, 5000, 40'000};
        const int64_t count = tag == kAnySourceTag ? 5 : counts[random->between(0, 5)];
        const std::vector<int32_t> values = message(from, number, count);
        lists[from][sends].push_back(request_of(RequestKind::kSend, to, tag, count));
        memories[from][sends].push_back({values, values});
        if (receive_lists.count(tag) == 0) {
          receive_lists[tag] = lists[to].size();
          lists[to].emplace_back();
          memories[to].emplace_back();
        }
        const size_t receives = receive_lists[tag];
        const int source = tag == kAnySourceTag ? -1 : from;
        lists[to][receives].push_back(request_of(RequestKind::kReceive, source, tag, count));
        memories[to][receives].push_back({std::vector<int32_t>(static_cast<size_t>(count), -1),
                                          source < 0 ? std::vector<int32_t>() : values});
      }
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    lists[rank].push_back({barrier(ranks, rank), barrier(ranks, rank)});
    memories[rank].push_back({{{}, {}}, {{}, {}}});
    std::vector<size_t> at(lists[rank].size(), 0);
    std::vector<size_t> order;
    for (size_t list = 0; list < lists[rank].size(); ++list) {
      order.insert(order.end(), lists[rank][list].size(), list);
    }
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[random->between(0, static_cast<int>(i) - 1)]);
    }
    for (const size_t list : order) {
      scripts[rank].calls.push_back(lists[rank][list][at[list]]);
      auto& [memory, expected] = memories[rank][list][at[list]++];
      scripts[rank].memory.push_back(std::move(memory));
      scripts[rank].expected.push_back(std::move(expected));
    }
  }
  return scripts;
}

// Messages from any source: each once, those of one sender in its order.
void check_any_source(const Ranks& ranks, int rank, int sent) {
  std::map<int, int> last;
  int received = 0;
  for (const auto& made : ranks.made(rank)) {
    if (made->request.kind != RequestKind::kReceive || made->request.peer >= 0) continue;
    ++received;
    const int source = made->work->source();
    ASSERT_EQ(made->work->tag(), kAnySourceTag);
    ASSERT_EQ(made->memory[0] / 1'000'000, source);
    const int number = made->memory[0] % 1'000'000 / 10'000;
    EXPECT_EQ(made->memory, message(source, number, 5));
    EXPECT_TRUE(last.count(source) == 0 || last[source] < number);
    last[source] = number;
  }
  EXPECT_EQ(received, sent);
}

TEST(Messages, ComeToTheirReceivesInAnyOrderOfCalls) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const int size = random.between(1, 5);
    Ranks ranks(seed, hosts(size, static_cast<int>(seed % 3)));
    std::vector<Script> scripts = draw(&random, size);
    std::vector<size_t> next(size, 0);
    ranks.run([&](int rank) {
      Script& script = scripts[rank];
      const int burst = random.between(0, 4);
      for (int i = 0; i < burst && next[rank] < script.calls.size(); ++i, ++next[rank]) {
        ranks.call(rank, script.calls[next[rank]], script.memory[next[rank]]);
      }
      return next[rank] < script.calls.size();
    });
    ASSERT_TRUE(ranks.all_ended());
    std::vector<int> any_source(size, 0);
    for (int rank = 0; rank < size; ++rank) {
      for (size_t i = 0; i < ranks.made(rank).size(); ++i) {
        const Made& made = *ranks.made(rank)[i];
        ASSERT_TRUE(made.work->status().ok()) << made.work->status().message();
        const Request& request = made.request;
        if (request.kind == RequestKind::kSend && request.tag == kAnySourceTag) {
          ++any_source[request.peer];
        }
        if (!scripts[rank].expected[i].empty()) {
          ASSERT_EQ(made.memory, scripts[rank].expected[i]);
        }
      }
    }
    for (int rank = 0; rank < size; ++rank) check_any_source(ranks, rank, any_source[rank]);
    EXPECT_TRUE(ranks.network()->complaints().empty());
    EXPECT_EQ(ranks.network()->unreleased(), 0u);
  }
}

// A rank dies, or a connection is cut, at some moment: every call of the others ends, by its
// deadline at the latest, and nobody writes to its memory after that.
TEST(Messages, EndWhateverDies) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const int size = random.between(2, 5);
    Ranks ranks(seed, hosts(size, static_cast<int>(seed % 3)));
    std::vector<Script> scripts = draw(&random, size);
    std::vector<size_t> next(size, 0);
    const int victim = random.between(0, size - 1);
    const bool dies = seed % 2 == 0;
    int until_fault = random.between(0, 2000);
    bool has_struck = false;
    std::map<const Made*, std::vector<int32_t>> at_end;
    ranks.run([&](int rank) {
      if (--until_fault == 0) {
        has_struck = true;
        if (dies) {
          ranks.network()->die(victim, /*loses=*/seed % 3 == 0);
        } else {
          ranks.network()->cut(victim, -1);
        }
      }
      if (has_struck && dies && rank == victim) return false;
      for (const auto& made : ranks.made(rank)) {
        if (made->work->done()) at_end.try_emplace(made.get(), made->memory);
      }
      Script& script = scripts[rank];
      const int burst = random.between(0, 3);
      for (int i = 0; i < burst && next[rank] < script.calls.size(); ++i, ++next[rank]) {
        Request request = script.calls[next[rank]];
        request.deadline = ranks.network()->now() + 50'000'000;
        ranks.call(rank, request, script.memory[next[rank]]);
      }
      return next[rank] < script.calls.size();
    });
    for (int rank = 0; rank < size; ++rank) {
      if (has_struck && dies && rank == victim) continue;
      for (size_t i = 0; i < ranks.made(rank).size(); ++i) {
        const Made& made = *ranks.made(rank)[i];
        ASSERT_TRUE(made.work->done()) << "rank " << rank << ", " << made.request.operation;
        if (at_end.count(&made) > 0) {
          EXPECT_EQ(made.memory, at_end[&made]);
        }
        const bool is_whole = made.work->status().ok() && !scripts[rank].expected[i].empty();
        if (is_whole) {
          ASSERT_EQ(made.memory, scripts[rank].expected[i]);
        }
      }
    }
  }
}

TEST(Messages, ManyThatNobodyAsksForAreBoundedAtTheReceiver) {
  Ranks ranks(3, {0, 1});
  for (int i = 0; i < 300; ++i) {
    ranks.call(0, request_of(RequestKind::kSend, 1, i, 4000), message(0, i, 4000));
  }
  ranks.run();
  EXPECT_LE(ranks.staging(1), 2 * engine::kRoom * engine::kEagerBytes);
  for (int i = 299; i >= 0; --i) {  // the last first
    ranks.call(1, request_of(RequestKind::kReceive, 0, i, 4000), std::vector<int32_t>(4000));
  }
  ranks.run();
  ASSERT_TRUE(ranks.all_ended());
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(ranks.made(1)[i]->memory, message(0, 299 - i, 4000));
    EXPECT_EQ(ranks.made(1)[i]->work->tag(), 299 - i);
  }
}

TEST(Messages, OfAnyTagComeInTheOrderOfTheirSends) {
  Ranks ranks(5, {0, 0});
  for (int i = 0; i < 40; ++i) {
    ranks.call(0, request_of(RequestKind::kSend, 1, 100 - i, 3 + i * 200),
               message(0, i, 3 + i * 200));
    ranks.call(1, request_of(RequestKind::kReceive, -1, -1, 3 + i * 200),
               std::vector<int32_t>(3 + i * 200));
  }
  ranks.run();
  ASSERT_TRUE(ranks.all_ended());
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(ranks.made(1)[i]->memory, message(0, i, 3 + i * 200));
    EXPECT_EQ(ranks.made(1)[i]->work->tag(), 100 - i);
  }
}

std::string error_of(const Made* made, StatusCode code) {
  EXPECT_TRUE(made->work->done());
  EXPECT_EQ(made->work->status().code(), code) << made->work->status().message();
  return made->work->status().message();
}

TEST(Messages, OfAnotherSizeOrDtypeEndTheGroupAndNothingIsWritten) {
  for (const int64_t count : {3, 30'000}) {
    for (const bool late : {false, true}) {
      for (const bool dtype : {false, true}) {
        Ranks ranks(7, hosts(2, dtype ? 2 : 0));
        Request receive = request_of(RequestKind::kReceive, 0, 1, dtype ? count : count + 1);
        if (dtype) receive.dtype = DataType::kFloat32;
        Made* received = nullptr;
        const auto call = [&] {
          received = ranks.call(1, receive, std::vector<int32_t>(count + 1, 17));
        };
        if (!late) call();
        ranks.call(0, request_of(RequestKind::kSend, 1, 1, count), message(0, 1, count));
        ranks.run();
        if (late) call();
        ranks.run();
        const std::string error = error_of(received, StatusCode::kMismatch);
        EXPECT_NE(error.find("rank 0 sends rank 1"), std::string::npos) << error;
        EXPECT_NE(error.find("with tag 1"), std::string::npos) << error;
        EXPECT_NE(error.find(std::to_string(count) + " int32"), std::string::npos) << error;
        EXPECT_EQ(received->memory, std::vector<int32_t>(count + 1, 17));
      }
    }
  }
}

TEST(Messages, ThatDoNotComeEndAtTheDeadlineAndSayWhatDid) {
  Ranks ranks(9, {0, 1, 2});
  Request receive = request_of(RequestKind::kReceive, 0, 4, 10);
  receive.deadline = 5'000'000;
  receive.timeout_ms = 5;
  const Made* received = ranks.call(1, receive, std::vector<int32_t>(10));
  ranks.call(0, request_of(RequestKind::kSend, 1, 2, 10), message(0, 1, 10));
  ranks.run();
  const std::string error = error_of(received, StatusCode::kTimeout);
  for (const char* part : {"recv of 10 int32 elements from rank 0 with tag 4", "on rank 1", "5 ms",
                           "rank 0 has not sent with tag 4, but with tag 2"}) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
}

TEST(Messages, FromAndToRanksThatDieEndWithTheirName) {
  const Request calls[] = {
      request_of(RequestKind::kReceive, 0, 4, 10), request_of(RequestKind::kReceive, 0, 4, 50'000),
      request_of(RequestKind::kReceive, -1, 4, 10), request_of(RequestKind::kSend, 0, 4, 50'000)};
  for (const Request& call : calls) {
    Ranks ranks(11, {0, 1, 2});
    const Made* made = ranks.call(1, call, std::vector<int32_t>(call.count));
    ranks.network()->die(0, /*loses=*/true);
    ranks.run();
    const std::string error = error_of(made, StatusCode::kPeerLost);
    EXPECT_NE(error.find("0"), std::string::npos) << error;
    EXPECT_NE(error.find(std::string("waited in ") + call.operation), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace ciuic::sim
