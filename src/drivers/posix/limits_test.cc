// SPDX-License-Identifier: Apache-2.0
// limits_test.cc: limits that are set in a child, since they cannot all be lifted again.

#include "drivers/posix/limits.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "drivers/posix/memfd.h"
#include "drivers/posix/socket.h"

namespace ciuic::posix {
namespace {

// The exit code of a forked child, which is what `check` returns there.
template <typename Check>
int in_child(Check check) {
  const pid_t child = fork();
  if (child == 0) _exit(check());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool set_limit(__rlimit_resource_t resource, rlim_t soft, rlim_t hard) {
  const rlimit limit{soft, hard};
  return setrlimit(resource, &limit) == 0;
}

bool has(const Status& status, const std::string& text) {
  if (status.message().find(text) != std::string::npos) return true;
  std::fprintf(stderr, "no \"%s\" in: %s\n", text.c_str(), status.message().c_str());
  return false;
}

TEST(Limits, RaisesTheSoftLimitOfDescriptorsWhereItMust) {
  EXPECT_EQ(in_child([] {
              if (!set_limit(RLIMIT_NOFILE, 40, 400)) return 1;
              const size_t left = room_for_descriptors(1);
              if (left < 1 || left > 40) return 2;
              rlimit limit{};
              getrlimit(RLIMIT_NOFILE, &limit);
              if (limit.rlim_cur != 40) return 3;  // there was room
              if (room_for_descriptors(100) != 100) return 4;
              std::vector<UniqueFd> opened;
              for (int i = 0; i < 100; ++i) opened.emplace_back(dup(0));
              for (const UniqueFd& fd : opened) {
                if (!fd) return 5;
              }
              getrlimit(RLIMIT_NOFILE, &limit);
              if (limit.rlim_cur >= 400) return 6;  // no more than asked for
              if (room_for_descriptors(100'000) >= 400) return 7;
              getrlimit(RLIMIT_NOFILE, &limit);
              return limit.rlim_cur == 400 && limit.rlim_max == 400 ? 0 : 8;
            }),
            0);
}

TEST(Limits, AnErrorForWantOfDescriptorsSaysHowToGetMore) {
  EXPECT_EQ(in_child([] {
              if (!set_limit(RLIMIT_NOFILE, 64, 64)) return 1;
              std::vector<UniqueFd> opened;
              Status status;
              while (status.ok()) {
                Result<UniqueFd> fd = listen_at({"127.0.0.1", 0});
                status = fd.status();
                if (fd.ok()) opened.push_back(std::move(*fd));
              }
              if (status.code() != StatusCode::kResource) return 2;
              if (!has(status, "RLIMIT_NOFILE allows 64 (hard limit 64)")) return 3;
              opened.pop_back();
              opened.pop_back();
              if (descriptor_advice().find("has 62 descriptors open") == std::string::npos)
                return 4;
              return has(status, "ulimit -n") ? 0 : 5;
            }),
            0);
}

TEST(Limits, AnErrorForWantOfMemorySaysHowMuchThereIs) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer itself needs address space";
#endif
  EXPECT_EQ(in_child([] {
              const UniqueFd fd = std::move(*create_memfd("limits", size_t{64} << 20));
              rlimit limit{};
              getrlimit(RLIMIT_AS, &limit);
              if (!set_limit(RLIMIT_AS, 1, limit.rlim_max)) return 1;
              const Result<Mapping> mapping = Mapping::map(fd.get(), size_t{64} << 20, true);
              if (!set_limit(RLIMIT_AS, limit.rlim_max, limit.rlim_max)) return 2;
              if (mapping.ok() || mapping.status().code() != StatusCode::kResource) return 3;
              return has(mapping.status(), "67108864 bytes") &&
                             has(mapping.status(), "RLIMIT_AS (ulimit -v) allows this process 1 ")
                         ? 0
                         : 4;
            }),
            0);
}

TEST(Limits, NoThreadIsAnError) {
  EXPECT_EQ(in_child([] {
              pthread_attr_t attributes;
              pthread_attr_init(&attributes);
              pthread_attr_setstacksize(&attributes, size_t{1} << 47);  // all there is
              if (pthread_setattr_default_np(&attributes) != 0) return 2;
              Result<std::thread> thread = start_thread([] {});
              if (thread.ok()) {
                thread->join();
                return 3;
              }
              if (thread.status().code() != StatusCode::kResource) return 4;
              return has(thread.status(), "RLIMIT_NPROC") ? 0 : 5;
            }),
            0);
  bool ran = false;
  Result<std::thread> thread = start_thread([&ran] { ran = true; });
  ASSERT_TRUE(thread.ok());
  thread->join();
  EXPECT_TRUE(ran);
}

// Without the look at what there is, this test would end the machine's other processes, too.
TEST(Limits, MoreMemoryThanThereIsIsRefusedAtOnce) {
  const size_t available = available_memory();
  EXPECT_GT(available, size_t{1} << 20);
  EXPECT_LT(available, size_t{1} << 45);
  EXPECT_EQ(in_child([] {
              // Where it is not refused, the attempt ends early.
              if (!set_limit(RLIMIT_FSIZE, 1 << 20, 1 << 20)) return 1;
              const auto made = create_memfd("test", size_t{1} << 45);
              return made.status().code() == StatusCode::kResource &&
                             has(made.status(), "35184372088832 bytes") &&
                             has(made.status(), "ENOMEM")
                         ? 0
                         : 2;
            }),
            0);
}

}  // namespace
}  // namespace ciuic::posix
