// SPDX-License-Identifier: Apache-2.0
// process_recorder_test.cc: whose memory the flight recorder takes, who can read it, when it is
// dumped. What would stay for good in this process is done in forked children.

#include "communicator/process_recorder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <vector>

#include "base/assert.h"
#include "base/fork.h"
#include "drivers/posix/memfd.h"
#include "drivers/posix/unique_fd.h"
#include "trace/dump.h"
#include "trace/parse.h"

namespace ciuic {
namespace {

namespace fs = std::filesystem;

const size_t kBytes = trace::bytes_for(64);

Config config_of(int fd = -1, const std::string& directory = "") {
  Config config;
  config.trace_events = 64;
  config.trace_fd = fd;
  config.trace_dir = directory;
  return config;
}

topology::Host this_host() {
  topology::Host host;
  host.name = "node7";
  host.pid = static_cast<int>(getpid());
  return host;
}

trace::GroupRecorder record(const Config& config) {
  return record_group(config, this_host(), {.name = "default", .rank = 1, .size = 2});
}

// A child that runs `body`, and is told to end by end().
class Child {
 public:
  explicit Child(const std::function<void()>& body) {
    fork_generation();  // counts from the first call on
    int ready[2];
    int go[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(go, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(go[1]);
      body();
      (void)!write(ready[1], "r", 1);
      char byte = 0;
      (void)!read(go[0], &byte, 1);
      // With what the library does at a process's end.
      std::exit(testing::Test::HasFailure() ? 1 : 0);
    }
    close(ready[1]);
    close(go[0]);
    go_.reset(go[1]);
    go_.close_in_children();  // else later ones would keep this one waiting
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int pid() const { return pid_; }
  void end() {
    if (!go_) return;
    go_.reset();
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }

 private:
  pid_t pid_ = -1;
  posix::UniqueFd go_;
};

std::string bytes_behind(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Result<trace::Trace> parse_text(const std::string& bytes) {
  return trace::parse(std::as_bytes(std::span(bytes)));
}

// What a process shows in /proc.
std::vector<std::string> recorders_of(int pid) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    std::error_code gone;
    const std::string target = fs::read_symlink(entry.path(), gone);
    if (target.starts_with(std::string("/memfd:") + kTraceMemoryName)) {
      paths.push_back(entry.path());
    }
  }
  return paths;
}

struct Directory {
  Directory() {
    std::string name = (fs::temp_directory_path() / "ciuic-recorder-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path = name;
  }
  ~Directory() { fs::remove_all(path); }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    if (!fs::exists(path + "/deep")) return names;
    for (const auto& entry : fs::directory_iterator(path + "/deep")) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
  std::string path;
};

TEST(ProcessRecorder, ShowsInProcAndIsReadFromOutside) {
  Child child([] {
    const Config config = config_of();
    EXPECT_EQ(process_recorder(config, this_host()), process_recorder(config, this_host()));
    trace::GroupRecorder group = record(config);
    group.called({.operation = "broadcast", .sequence = 0, .root = 1, .count = 5});
  });
  const auto paths = recorders_of(child.pid());
  ASSERT_EQ(paths.size(), 1u);
  const auto trace = parse_text(bytes_behind(paths[0]));
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->process.pid, child.pid());
  EXPECT_EQ(trace->process.host, "node7");
  ASSERT_EQ(trace->operations.size(), 1u);
  EXPECT_EQ(trace->operations[0].name, "broadcast");
}

TEST(ProcessRecorder, TakesTheLaunchersMemoryUnlessItIsInUse) {
  auto memory = posix::create_memfd(kTraceMemoryName, kBytes);
  ASSERT_TRUE(memory.ok());
  const int fd = memory->get();
  auto mapping = posix::Mapping::map(fd, kBytes, false);
  ASSERT_TRUE(mapping.ok());
  const auto writer = [&] {
    const auto trace = trace::parse({mapping->data(), kBytes});
    return trace.ok() ? trace->process.pid : 0;
  };
  EXPECT_EQ(writer(), 0);
  const auto join_and_stay = [fd] { record(config_of(fd)); };
  Child first(join_and_stay);
  EXPECT_EQ(writer(), first.pid());
  Child second(join_and_stay);
  EXPECT_EQ(writer(), first.pid());
  // It has the launcher's as we do, and one of its own.
  EXPECT_EQ(recorders_of(second.pid()).size(), recorders_of(first.pid()).size() + 1);
  first.end();
  Child third(join_and_stay);
  EXPECT_EQ(writer(), third.pid());
  EXPECT_EQ(trace::parse({mapping->data(), kBytes})->groups.size(), 1u);
}

TEST(ProcessRecorder, PassesOverDescriptorsThatAreNotForIt) {
  auto smaller = posix::create_memfd(kTraceMemoryName, kBytes - 4096);
  ASSERT_TRUE(smaller.ok());
  posix::UniqueFd file(memfd_create("not sealed", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), static_cast<off_t>(kBytes)), 0);
  for (const int fd : {smaller->get(), file.get(), 1 << 20, 0}) {
    Child child([fd] { EXPECT_TRUE(record(config_of(fd)).records()); });
  }
  EXPECT_EQ(bytes_behind("/proc/self/fd/" + std::to_string(file.get())), std::string(kBytes, '\0'));
}

TEST(ProcessRecorder, AForkedChildWritesToItsOwn) {
  Child parent([] {
    const Config config = config_of();
    trace::GroupRecorder of_parent = record(config);
    Child child([&] {
      EXPECT_TRUE(recorders_of(getpid()).empty());  // the parent's is closed in it
      record(config).called({.operation = "barrier", .sequence = 7});
    });
    const auto of_child = parse_text(bytes_behind(recorders_of(child.pid()).at(0)));
    EXPECT_EQ(of_child->process.pid, child.pid());
    EXPECT_EQ(of_child->operations.size(), 1u);
    const auto ours = parse_text(bytes_behind(recorders_of(getpid()).at(0)));
    EXPECT_EQ(ours->process.pid, getpid());
    EXPECT_TRUE(ours->operations.empty());
  });
}

TEST(ProcessRecorder, AFailureIsDumpedBeforeTheProcessEnds) {
  const Directory directory;
  const std::string place = directory.path + "/deep";
  Child child([&] {
    trace::GroupRecorder group = record(config_of(-1, place));
    group.called({.operation = "all_reduce", .sequence = 3});
    group.failed({StatusCode::kTimeout, "rank 0 is late"});
  });
  const int pid = child.pid();
  child.end();
  const std::string name = "rank1.node7." + std::to_string(pid) + std::string(trace::kDumpSuffix);
  EXPECT_THAT(directory.files(), testing::ElementsAre(name));
  const auto trace = parse_text(bytes_behind(place + "/" + name));
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->groups.at(0).text, "rank 0 is late");
  EXPECT_TRUE(trace->process.dumped_ns.has_value());
  EXPECT_EQ(trace->process.dump.by, static_cast<uint8_t>(trace::DumpedBy::kItself));
}

TEST(ProcessRecorder, AnOrderlyEndIsNotDumped) {
  const Directory directory;
  Child child([&] { record(config_of(-1, directory.path + "/deep")).closed(); });
  child.end();
  EXPECT_TRUE(directory.files().empty());
}

TEST(ProcessRecorderDeathTest, AFaultOfOursIsDumpedBeforeTheAbort) {
  GTEST_FLAG_SET(death_test_style, "fast");
  const Directory directory;
  const auto fail = [&] {
    trace::GroupRecorder group = record(config_of(-1, directory.path + "/deep"));
    CIUIC_ASSERT(group.records() && 1 < 0);
  };
  fork_generation();
  EXPECT_DEATH(fail(), "1 < 0 does not hold");
  EXPECT_EQ(directory.files().size(), 1u);
}

TEST(ProcessRecorder, ThereIsNoneWhereTheSettingsSaySo) {
  Config config = config_of();
  config.trace_events = 0;
  EXPECT_EQ(process_recorder(config, this_host()), nullptr);
  EXPECT_FALSE(record(config).records());
}

}  // namespace
}  // namespace ciuic
