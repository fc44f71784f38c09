// SPDX-License-Identifier: Apache-2.0
// nccl_fake_test.cc: the fake libnccl through the driver, with forked processes as ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include "nccl_ranks.h"

namespace ciuic::nccl {
namespace {

using testing::HasSubstr;

constexpr int kInt32 = 2;
constexpr int kFloat16 = 6;
constexpr int kFloat = 7;
constexpr int kFloat8 = 10;

// What rank `rank` has at place `i`: small whole numbers, so that sums are exact.
float value(int rank, size_t i) {
  return static_cast<float>((i * 7 + 3 * static_cast<size_t>(rank)) % 11);
}

std::vector<float> values(int rank, size_t count, size_t first = 0) {
  std::vector<float> all(count);
  for (size_t i = 0; i < count; ++i) all[i] = value(rank, first + i);
  return all;
}

std::vector<float> sums(int size, size_t count, size_t first = 0) {
  std::vector<float> all(count);
  for (int rank = 0; rank < size; ++rank) {
    for (size_t i = 0; i < count; ++i) all[i] += value(rank, first + i);
  }
  return all;
}

class Collectives : public testing::TestWithParam<std::tuple<int, size_t>> {};

TEST_P(Collectives, GiveWhatTheyShould) {
  const auto [size, count] = GetParam();
  run_ranks(size, [&, ranks = size, each = count](Rank& r) {
    const size_t total = each * static_cast<size_t>(ranks);
    const int root = ranks - 1;
    const Comm comm = r.join(ranks);
    const Buffer input = r.buffer(values(r.rank, total));
    const Buffer output = r.buffer(std::vector<float>(total, -1));
    const auto result = [&](int code, size_t elements) {
      EXPECT_EQ(code, kSuccess) << r.nccl.get_last_error(nullptr);
      return r.read(output, elements);
    };
    EXPECT_EQ(
        result(r.nccl.all_reduce(input.at, output.at, each, kFloat, kSum, comm, r.stream), each),
        sums(ranks, each));
    EXPECT_EQ(result(r.nccl.reduce_scatter(input.at, output.at, each, kFloat, kSum, comm, r.stream),
                     each),
              sums(ranks, each, each * static_cast<size_t>(r.rank)));
    EXPECT_EQ(
        result(r.nccl.broadcast(input.at, output.at, each, kFloat, root, comm, r.stream), each),
        values(root, each));
    const std::vector<float> gathered =
        result(r.nccl.all_gather(input.at, output.at, each, kFloat, comm, r.stream), total);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto begin = gathered.begin() + static_cast<std::ptrdiff_t>(each) * rank;
      EXPECT_EQ(std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(each)),
                values(rank, each));
    }
    const std::vector<float> before = r.read(output, each);
    EXPECT_EQ(
        result(r.nccl.reduce(input.at, output.at, each, kFloat, kSum, root, comm, r.stream), each),
        r.rank == root ? sums(ranks, each) : before);
    // In place.
    EXPECT_EQ(r.nccl.all_reduce(input.at, input.at, each, kFloat, kSum, comm, r.stream), kSuccess);
    EXPECT_EQ(r.read(input, each), sums(ranks, each));
    EXPECT_EQ(r.nccl.comm_finalize(comm), kSuccess);
    EXPECT_EQ(r.nccl.comm_destroy(comm), kSuccess);
  });
}

// 40,000 elements are more than a ring holds.
INSTANTIATE_TEST_SUITE_P(Nccl, Collectives,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::Values(size_t{1}, size_t{1000},
                                                          size_t{40'000})));

TEST(NcclFake, ReducesByOperationAndType) {
  run_ranks(3, [](Rank& r) {
    const Comm comm = r.join(3);
    const auto reduced = [&](auto element, int type, int op) {
      const Buffer buffer = r.buffer(std::vector{element});
      EXPECT_EQ(r.nccl.all_reduce(buffer.at, buffer.at, 1, type, op, comm, r.stream), kSuccess);
      return r.read_as<decltype(element)>(buffer, 1)[0];
    };
    const auto third = [&](auto a, auto b, auto c) {
      return r.rank == 0 ? a : r.rank == 1 ? b : c;
    };
    EXPECT_EQ(reduced(third(2, 3, -4), kInt32, kProd), -24);
    EXPECT_EQ(reduced(third(2, 3, -4), kInt32, kMin), -4);
    EXPECT_EQ(reduced(third(2, 3, -4), kInt32, kMax), 3);
    EXPECT_EQ(reduced(third(-2, -3, -3), kInt32, kAvg), -2);  // -8 / 3, toward zero
    EXPECT_EQ(reduced(third(2.0f, 3.0f, NAN), kFloat, kMax), 3.0f);
    EXPECT_FLOAT_EQ(reduced(third(2.0f, 3.0f, 4.0f), kFloat, kAvg), 3.0f);
    EXPECT_EQ(reduced(std::numeric_limits<float>::max(), kFloat, kAvg),
              std::numeric_limits<float>::max());
    // 2048 + 1 + 1: rounded once.
    EXPECT_EQ(reduced(uint16_t(third(0x6800, 0x3C00, 0x3C00)), kFloat16, kSum), 0x6801);
    EXPECT_EQ(reduced(uint8_t(third(0x38, 0x40, 0x30)), kFloat8, kSum), 0x46);  // 1 + 2 + 0.5
    // A third is 0.34375 in float8: 3 times 16 / 3 is 16.5, which is 16.
    EXPECT_EQ(reduced(uint8_t{0x58}, kFloat8, kAvg), 0x58);

    float scale = 0.5;
    int op = -1;
    ASSERT_EQ(r.nccl.red_op_create_pre_mul_sum(&op, &scale, kFloat, kScalarHostImmediate, comm),
              kSuccess);
    EXPECT_EQ(reduced(third(2.0f, 3.0f, 4.0f), kFloat, op), 4.5f);
    EXPECT_EQ(r.nccl.red_op_destroy(op, comm), kSuccess);
    EXPECT_EQ(r.nccl.red_op_destroy(op, comm), kInvalidArgument);
    EXPECT_EQ(r.nccl.comm_destroy(comm), kSuccess);
  });
}

TEST(NcclFake, GroupedSendsAndReceivesMakeProgressTogether) {
  constexpr size_t kCount = 30'000;  // all send more than the rings hold before any receives
  run_ranks(4, [](Rank& r) {
    const Comm comm = r.join(4);
    const Buffer input = r.buffer(values(r.rank, 5 * kCount));
    const Buffer output = r.buffer(std::vector<float>(5 * kCount));
    ASSERT_EQ(r.nccl.group_start(), kSuccess);
    for (int peer = 0; peer < 4; ++peer) {  // also to itself
      const size_t block = kCount * static_cast<size_t>(peer);
      EXPECT_EQ(r.nccl.send(input.element(block), kCount, kFloat, peer, comm, r.stream), kSuccess);
      EXPECT_EQ(r.nccl.recv(output.element(block), kCount, kFloat, peer, comm, r.stream), kSuccess);
    }
    // A second one to the same peer comes second.
    const int next = r.rank ^ 1;
    EXPECT_EQ(r.nccl.send(input.element(4 * kCount), 10, kFloat, next, comm, r.stream), kSuccess);
    EXPECT_EQ(r.nccl.recv(output.element(4 * kCount), 10, kFloat, next, comm, r.stream), kSuccess);
    ASSERT_EQ(r.nccl.group_end(), kSuccess);
    const std::vector<float> all = r.read(output, 4 * kCount + 10);
    for (int peer = 0; peer < 4; ++peer) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(kCount) * peer;
      EXPECT_EQ(std::vector<float>(begin, begin + kCount),
                values(peer, kCount, kCount * static_cast<size_t>(r.rank)));
    }
    EXPECT_EQ(std::vector<float>(all.end() - 10, all.end()), values(next, 10, 4 * kCount));
    EXPECT_EQ(r.nccl.comm_destroy(comm), kSuccess);
  });
}

TEST(NcclFake, WorksInTheOrderOfTheStream) {
  run_ranks(2, [](Rank& r) {
    const Comm comm = r.join(2);
    const Buffer buffer = r.buffer(std::vector<float>{-100});
    const float late = static_cast<float>(r.rank + 1);
    const int64_t delay_us = r.rank == 0 ? 20'000 : 0;
    ASSERT_EQ(ciuic_fake_store(r.stream, buffer.at, &late, sizeof late, delay_us), kSuccess);
    ASSERT_EQ(r.nccl.all_reduce(buffer.at, buffer.at, 1, kFloat, kSum, comm, r.stream), kSuccess);
    EXPECT_EQ(r.read(buffer, 1)[0], 3);
    r.meet();

    // On another stream that does not wait, the old value is there: the store stands behind a gate.
    const cuda::Stream other = r.make_stream();
    Gate gate(r.stream);
    ASSERT_EQ(ciuic_fake_store(r.stream, buffer.at, &late, sizeof late, 0), kSuccess);
    ASSERT_EQ(r.nccl.all_reduce(buffer.at, buffer.at, 1, kFloat, kSum, comm, other), kSuccess);
    ASSERT_EQ(r.cuda.stream_synchronize(other), cuda::kSuccess);
    EXPECT_EQ(r.peek(buffer), 6);
    gate.open();
    EXPECT_EQ(r.nccl.comm_destroy(comm), kSuccess);
  });
}

TEST(NcclFake, AGroupOnSeveralStreamsWaitsForAllOfThemAndTheyForIt) {
  run_ranks(2, [](Rank& r) {
    const Comm comm = r.join(2);
    const Buffer a = r.buffer(std::vector<float>{1});
    const Buffer b = r.buffer(std::vector<float>{2});
    const cuda::Stream other = r.make_stream();
    Gate gate(other);
    ASSERT_EQ(r.nccl.group_start(), kSuccess);
    ASSERT_EQ(r.nccl.all_reduce(a.at, a.at, 1, kFloat, kSum, comm, r.stream), kSuccess);
    ASSERT_EQ(r.nccl.all_reduce(b.at, b.at, 1, kFloat, kSum, comm, other), kSuccess);
    ASSERT_EQ(r.nccl.group_end(), kSuccess);
    const cuda::Event event = r.record(r.stream);
    EXPECT_EQ(r.cuda.event_query(event), cuda::kNotReady);
    gate.open();
    EXPECT_EQ(r.cuda.stream_synchronize(other), cuda::kSuccess);
    EXPECT_EQ(r.peek(a), 2);
    EXPECT_EQ(r.peek(b), 4);
    EXPECT_EQ(r.nccl.comm_destroy(comm), kSuccess);
  });
}

TEST(NcclFake, AnAbortEndsWorkThatWaitsForAPeer) {
  run_ranks(2, [](Rank& r) {
    const Comm comm = r.join(2);
    const Comm second = r.join(2);
    const Buffer own = r.buffer(std::vector<float>{1});
    if (r.rank == 0) {
      const Buffer buffer = r.buffer(std::vector<float>{1});
      ASSERT_EQ(r.nccl.all_reduce(buffer.at, buffer.at, 1, kFloat, kSum, comm, r.stream), kSuccess);
    }
    // The other communicator, on another stream, goes on meanwhile.
    const cuda::Stream other = r.make_stream();
    ASSERT_EQ(r.nccl.all_reduce(own.at, own.at, 1, kFloat, kSum, second, other), kSuccess);
    ASSERT_EQ(r.cuda.stream_synchronize(other), cuda::kSuccess);
    EXPECT_EQ(r.peek(own), 2);
    if (r.rank == 0) {
      const cuda::Event event = r.record(r.stream);
      EXPECT_EQ(r.cuda.event_query(event), cuda::kNotReady);
      EXPECT_EQ(r.nccl.comm_abort(comm), kSuccess);
      EXPECT_EQ(r.cuda.event_synchronize(event), cuda::kSuccess);
      int code = -1;
      EXPECT_EQ(r.nccl.comm_get_async_error(comm, &code), kInvalidArgument);
    } else {
      EXPECT_EQ(r.nccl.comm_destroy(comm), kSuccess);
    }
    EXPECT_EQ(r.nccl.comm_destroy(second), kSuccess);
  });
}

TEST(NcclFake, CallsThatDifferHangUntilTheyAreAborted) {
  run_ranks(2, [](Rank& r) {
    const Comm comm = r.join(2);
    const Buffer buffer = r.buffer(std::vector<float>(2));
    const size_t count = r.rank == 0 ? 1 : 2;
    ASSERT_EQ(r.nccl.all_reduce(buffer.at, buffer.at, count, kFloat, kSum, comm, r.stream),
              kSuccess);
    const cuda::Event event = r.record(r.stream);
    r.meet();
    EXPECT_EQ(r.cuda.event_query(event), cuda::kNotReady);
    r.meet();
    EXPECT_EQ(r.nccl.comm_abort(comm), kSuccess);
    EXPECT_EQ(r.cuda.event_synchronize(event), cuda::kSuccess);
  });
}

TEST(NcclFake, APeerThatIsGoneIsARemoteError) {
  run_ranks(2, [](Rank& r) {
    const Comm comm = r.join(2);
    if (r.rank == 1) return;
    const Buffer buffer = r.buffer(std::vector<float>{1});
    ASSERT_EQ(r.nccl.all_reduce(buffer.at, buffer.at, 1, kFloat, kSum, comm, r.stream), kSuccess);
    int code = kSuccess;
    while (code == kSuccess) {
      ASSERT_EQ(r.nccl.comm_get_async_error(comm, &code), kSuccess);
      std::this_thread::yield();
    }
    EXPECT_EQ(code, kRemoteError);
    EXPECT_EQ(error_of(r.nccl, "ncclAllReduce", code, comm).code(), StatusCode::kPeerLost);
    EXPECT_EQ(r.nccl.comm_abort(comm), kSuccess);
    EXPECT_EQ(r.cuda.stream_synchronize(r.stream), cuda::kSuccess);
  });
}

TEST(NcclFake, RefusesTwoRanksOnOneDevice) {
  run_ranks(3, [](Rank& r) {
    ASSERT_EQ(r.cuda.set_device(r.rank % 2), cuda::kSuccess);
    Comm comm = nullptr;
    const int code = r.init(3, r.share_id(3), default_config(22705), &comm);
    EXPECT_EQ(comm, nullptr);
    const Status status = error_of(r.nccl, "ncclCommInitRankConfig", code, nullptr);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("Duplicate GPU detected : rank 0 and rank 2 both on"));
    EXPECT_THAT(status.message(), HasSubstr("NCCL wants a GPU for each rank"));
  });
}

TEST(NcclFake, ThreadsOfOneProcessCanBeRanks) {
  run_ranks(1, [](Rank& r) {
    UniqueId id = r.share_id(1);
    const auto body = [&](int rank) {
      ASSERT_EQ(r.cuda.set_device(rank), cuda::kSuccess);
      Comm comm = nullptr;
      Config config = default_config(r.version);
      ASSERT_EQ(r.nccl.comm_init_rank_config(&comm, 3, id, rank, &config), kSuccess);
      void* memory = nullptr;
      ASSERT_EQ(r.cuda.malloc(&memory, sizeof(float)), cuda::kSuccess);
      const float own = static_cast<float>(rank + 1);
      // On the legacy stream of the communicator's device.
      ASSERT_EQ(ciuic_fake_store(nullptr, memory, &own, sizeof own, 0), cuda::kSuccess);
      ASSERT_EQ(r.nccl.all_reduce(memory, memory, 1, kFloat, kSum, comm, nullptr), kSuccess);
      ASSERT_EQ(r.cuda.stream_synchronize(nullptr), cuda::kSuccess);
      EXPECT_EQ(r.peek({memory}), 6);
      EXPECT_EQ(r.nccl.comm_destroy(comm), kSuccess);
      EXPECT_EQ(r.cuda.free(memory), cuda::kSuccess);
    };
    std::thread first(body, 1);
    std::thread second(body, 2);
    body(0);
    first.join();
    second.join();
  });
}

TEST(NcclFake, SplitsByColorAndKey) {
  run_ranks(4, [](Rank& r) {
    const Comm comm = r.join(4);
    for (int round = 0; round < 3; ++round) {
      Comm part = nullptr;
      const int color = r.rank == 3 ? -1 : r.rank % 2;
      ASSERT_EQ(r.nccl.comm_split(comm, color, -r.rank, &part, nullptr), kSuccess);
      if (r.rank == 3) {
        EXPECT_EQ(part, nullptr);
        continue;
      }
      int size = 0;
      ASSERT_EQ(r.nccl.comm_count(part, &size), kSuccess);
      EXPECT_EQ(size, r.rank == 1 ? 1 : 2);
      const Buffer buffer = r.buffer(std::vector<float>{static_cast<float>(r.rank)});
      // The highest rank has the lowest key, so it is the root.
      ASSERT_EQ(r.nccl.broadcast(buffer.at, buffer.at, 1, kFloat, 0, part, r.stream), kSuccess);
      EXPECT_EQ(r.read(buffer, 1)[0], r.rank == 1 ? 1 : 2);
      EXPECT_EQ(r.nccl.comm_destroy(part), kSuccess);
    }
    EXPECT_EQ(r.nccl.comm_destroy(comm), kSuccess);
  });
}

TEST(NcclFake, ACommunicatorThatDoesNotBlockIsInProgress) {
  run_ranks(2, [](Rank& r) {
    Config config = default_config(22705);
    config.blocking = 0;
    Comm comm = nullptr;
    const auto finish = [&] {
      int code = kInProgress;
      while (code == kInProgress) {
        std::this_thread::yield();
        EXPECT_EQ(r.nccl.comm_get_async_error(comm, &code), kSuccess);
      }
      EXPECT_EQ(code, kSuccess);
    };
    const UniqueId id = r.share_id(2);
    if (r.rank == 0) {
      ASSERT_EQ(r.init(2, id, config, &comm), kInProgress);
      const Buffer buffer = r.buffer(std::vector<float>{1});
      EXPECT_EQ(r.nccl.all_reduce(buffer.at, buffer.at, 1, kFloat, kSum, comm, r.stream),
                kInvalidArgument);
      EXPECT_THAT(r.nccl.get_last_error(comm), HasSubstr("before the previous operation returned"));
      r.meet();
    } else {
      r.meet();
      ASSERT_EQ(r.init(2, id, config, &comm), kInProgress);
    }
    finish();
    const Buffer buffer = r.buffer(std::vector<float>{1});
    EXPECT_EQ(r.nccl.all_reduce(buffer.at, buffer.at, 1, kFloat, kSum, comm, r.stream),
              kInProgress);
    finish();
    EXPECT_EQ(r.read(buffer, 1)[0], 2);
    EXPECT_EQ(r.nccl.comm_finalize(comm), kInProgress);
    finish();
    EXPECT_EQ(r.nccl.comm_destroy(comm), kSuccess);

    // An abort while a peer does not come.
    if (r.rank == 0) {
      ASSERT_EQ(r.init(3, r.share_id(1), config, &comm), kInProgress);
      EXPECT_EQ(r.nccl.comm_abort(comm), kSuccess);
    }
  });
}

TEST(NcclFake, RefusesWhatCannotBe) {
  run_ranks(1, [](Rank& r) {
    const Comm comm = r.join(1);
    const Buffer buffer = r.buffer(std::vector<float>{1, 2});
    const auto all_reduce = [&](const void* at, size_t count, int type, int op) {
      return r.nccl.all_reduce(at, buffer.at, count, type, op, comm, r.stream);
    };
    EXPECT_EQ(all_reduce(buffer.at, 2, 12, kSum), kInvalidArgument);
    EXPECT_EQ(all_reduce(buffer.at, 2, kFloat, 9), kInvalidArgument);
    EXPECT_EQ(all_reduce(buffer.at, 3, kFloat, kSum), kInvalidArgument);
    EXPECT_THAT(r.nccl.get_last_error(nullptr), HasSubstr("is not a valid pointer"));
    EXPECT_EQ(all_reduce(&buffer, 1, kFloat, kSum), kInvalidArgument);
    EXPECT_EQ(all_reduce(nullptr, 0, kFloat, kSum), kSuccess);
    EXPECT_EQ(r.nccl.broadcast(buffer.at, buffer.at, 1, kFloat, 1, comm, r.stream),
              kInvalidArgument);
    EXPECT_EQ(r.nccl.all_reduce(buffer.at, buffer.at, 1, kFloat, kSum, r.stream, r.stream),
              kInvalidArgument);
    EXPECT_EQ(r.nccl.all_reduce(buffer.at, buffer.at, 1, kFloat, kSum, comm, &r), 1);

    // A group with an error does nothing.
    EXPECT_EQ(r.nccl.group_end(), kInvalidUsage);
    ASSERT_EQ(r.nccl.group_start(), kSuccess);
    float scale = 3;
    int op = -1;
    ASSERT_EQ(r.nccl.red_op_create_pre_mul_sum(&op, &scale, kFloat, kScalarHostImmediate, comm),
              kSuccess);
    EXPECT_EQ(all_reduce(buffer.at, 2, kFloat, op), kSuccess);
    EXPECT_EQ(all_reduce(buffer.at, 2, 12, kSum), kInvalidArgument);
    EXPECT_EQ(r.nccl.group_end(), kInvalidArgument);
    EXPECT_EQ(r.read(buffer, 2), (std::vector<float>{1, 2}));

    ASSERT_EQ(ciuic_fake_calls("ncclGroupEnd"), 2);
    EXPECT_EQ(r.fail(comm, kSystemError), kSuccess);
    int code = kSuccess;
    EXPECT_EQ(r.nccl.comm_get_async_error(comm, &code), kSuccess);
    EXPECT_EQ(code, kSystemError);
    EXPECT_EQ(all_reduce(buffer.at, 2, kFloat, kSum), kSystemError);
    EXPECT_EQ(r.nccl.comm_abort(comm), kSuccess);
  });
}

TEST(NcclFake, OldVersionsKnowLess) {
  run_ranks(1, {{"FAKE_NCCL_VERSION", "21602"}}, [](Rank& r) {
    EXPECT_EQ(r.version, 21602);
    EXPECT_EQ(r.nccl.comm_split, nullptr);
    Comm comm = nullptr;
    EXPECT_EQ(r.init(1, r.share_id(1), Config{}, &comm), kInvalidArgument);
    ASSERT_EQ(r.init(1, r.share_id(1), default_config(r.version), &comm), kSuccess);
    const Buffer buffer = r.buffer(std::vector<float>{1});
    EXPECT_EQ(r.nccl.all_reduce(buffer.at, buffer.at, 1, kFloat8, kSum, comm, r.stream),
              kInvalidArgument);
    EXPECT_EQ(r.nccl.comm_destroy(comm), kSuccess);
  });
}

TEST(NcclFakeDeathTest, OtherVersionsAreRefused) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto open = [](const char* version) {
    ::setenv("FAKE_NCCL_VERSION", version, 1);
    const std::string paths[] = {CIUIC_FAKE_NCCL};
    const Result<const Library*> library = open_nccl(paths);
    if (library.ok()) std::_Exit(1);
    std::fputs(library.status().message().c_str(), stderr);
    std::_Exit(is_loaded() ? 0 : 2);
  };
  EXPECT_FALSE(is_loaded());
  const auto zero = testing::ExitedWithCode(0);
  EXPECT_EXIT(open("30001"), zero,
              HasSubstr("it is NCCL 3.0.1, and its major version is not known"));
  EXPECT_EXIT(open("21210"), zero, HasSubstr("it is NCCL 2.12.10, older than 2.14.0"));
}

}  // namespace
}  // namespace ciuic::nccl
