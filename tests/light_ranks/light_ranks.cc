// SPDX-License-Identifier: Apache-2.0
// light_ranks.cc: many ranks on this machine, each a process of a few MiB: they join, reduce, and
// end; or each that cannot says which limit is too low.
//
//   light_ranks --ranks 200                         all join, and all get the right sum
//   light_ranks --ranks 2 --groups 500              that many groups, one after another
//   light_ranks --ranks 5 --repeat 40 --ends leak   nobody closes its group or destroys it; each
//                                                   goes as soon as it has its results (also:
//                                                   static)
//   light_ranks --ranks 64 --soft_descriptors 40    rank 0 may open so many at first, and raises it
//   light_ranks --ranks 64 --descriptors 40 --says RLIMIT_NOFILE
//                                                   rank 0 may open no more, and must say why it
//                                                   fails; nobody may say that all is well
//
// Exit code 0: as asked for.

#include <ciuic/communicator.h>
#include <ciuic/store.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
// OpenSSL's clean-up at the exit comes before the end of threads that a static communicator still
// has; it takes away by what they give back the 904 bytes of their error queues.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:CRYPTO_zalloc\n";
}
#endif

namespace {

// What 500 groups may leave of memory: 2 KiB each would be a leak, and is more than the allocator's
// own sway.
constexpr long kMostKib = 1024;

struct Options {
  int ranks = 2;
  int groups = 1;
  int count = 1000;
  int repeat = 1;             // all of it
  std::string ends = "drop";  // how a rank lets go of its last group: drop, leak, static
  int64_t timeout_ms = 240'000;
  rlim_t descriptors = 0;       // of rank 0; 0: as it is
  rlim_t soft_descriptors = 0;  // likewise; the hard limit stays
  std::string says;             // text of rank 0's error; empty: none is expected
};

// "--name value" pairs.
Options parse(int argc, char** argv) {
  std::map<std::string, std::string> given;
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  const auto number = [&](const char* name, int64_t otherwise) {
    return given.count(name) > 0 ? std::atoll(given[name].c_str()) : otherwise;
  };
  Options options;
  options.ranks = static_cast<int>(number("--ranks", options.ranks));
  options.groups = static_cast<int>(number("--groups", options.groups));
  options.count = static_cast<int>(number("--count", options.count));
  options.repeat = static_cast<int>(number("--repeat", options.repeat));
  if (given.count("--ends") > 0) options.ends = given["--ends"];
  options.timeout_ms = number("--timeout_ms", options.timeout_ms);
  options.descriptors = static_cast<rlim_t>(number("--descriptors", 0));
  options.soft_descriptors = static_cast<rlim_t>(number("--soft_descriptors", 0));
  options.says = given["--says"];
  return options;
}

struct Held {
  long descriptors = 0;
  long threads = 0;
  long kib = 0;
};

long entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder),
                       std::filesystem::directory_iterator());
}

Held held() {
  Held now;
  now.descriptors = entries("/proc/self/fd");
  now.threads = entries("/proc/self/task");
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) now.kib = std::atol(line.c_str() + 6);
  }
  return now;
}

// Joins, reduces, and leaves; every other group is closed. Empty: well.
std::string use_one_group(const Options& options, const std::string& folder, int rank, int number) {
  ciuic::CommunicatorOptions of_group;
  of_group.rank = rank;
  of_group.size = options.ranks;
  of_group.timeout_ms = options.timeout_ms;
  of_group.group_name = "group" + std::to_string(number);
  auto store = ciuic::open_store("file://" + folder, options.timeout_ms);
  if (!store.ok()) return store.status().message();
  of_group.store = std::move(*store);
  auto group = ciuic::Communicator::create(of_group);
  if (!group.ok()) return group.status().message();
  std::vector<int32_t> values(static_cast<size_t>(options.count), rank + 1);
  const ciuic::MutableBuffer buffer{values.data(), options.count, ciuic::DataType::kInt32,
                                    ciuic::Device{}};
  auto work = (*group)->all_reduce(buffer, buffer, ciuic::ReduceOp::kSum);
  ciuic::Status status = work.ok() ? work->wait() : work.status();
  if (!status.ok()) return status.message();
  const int32_t sum = options.ranks * (options.ranks + 1) / 2;
  if (std::any_of(values.begin(), values.end(), [sum](int32_t each) { return each != sum; })) {
    return "a wrong sum";
  }
  work = (*group)->barrier();
  status = work.ok() ? work->wait() : work.status();
  if (!status.ok()) return status.message();
  // Destroyed together with the library's own statics, or never, with its threads at work.
  static std::unique_ptr<ciuic::Communicator> kept;
  if (options.ends == "static") kept = std::move(*group);
  if (options.ends == "leak") (void)group->release();
  if (options.ends != "drop") return "";
  if (number % 2 == 1) status = (*group)->close();
  return status.ok() ? "" : status.message();
}

// What a rank does; the text of its failure.
std::string run_rank(const Options& options, const std::string& folder, int rank) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (options.descriptors > 0) limit = {options.descriptors, options.descriptors};
  if (options.soft_descriptors > 0) limit.rlim_cur = options.soft_descriptors;
  if (rank == 0 && setrlimit(RLIMIT_NOFILE, &limit) != 0) return "setrlimit failed";
  const int warm_up = options.groups > 1 ? 30 : 0;
  Held before;
  for (int number = 0; number < warm_up + options.groups; ++number) {
    if (number == warm_up) before = held();
    const std::string failure = use_one_group(options, folder, rank, number);
    if (!failure.empty()) return failure;
  }
  const auto is_more = [&before](const Held& now) {
    return now.descriptors > before.descriptors || now.threads > before.threads ||
           now.kib > before.kib + kMostKib;
  };
  // The last farewell may still be on its way to a peer.
  Held after = held();
  for (int i = 0; warm_up > 0 && is_more(after) && i < 1000; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    after = held();
  }
  if (warm_up > 0 && is_more(after)) {
    return "descriptors, threads and KiB were " + std::to_string(before.descriptors) + " " +
           std::to_string(before.threads) + " " + std::to_string(before.kib) + ", and are " +
           std::to_string(after.descriptors) + " " + std::to_string(after.threads) + " " +
           std::to_string(after.kib);
  }
  if (rank == 0) {
    std::printf("rank 0 holds %ld descriptors, %ld threads, %ld KiB\n", after.descriptors,
                after.threads, after.kib);
  }
  return "";
}

struct Child {
  pid_t pid = -1;
  std::string file;  // where it leaves the text of its failure
};

// All ranks, once. Whether all went as asked for.
bool run_all(const Options& options) {
  std::string folder = std::filesystem::temp_directory_path() / "light_ranks.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return false;
  const auto began = std::chrono::steady_clock::now();
  const pid_t parent = getpid();
  std::vector<Child> children(static_cast<size_t>(options.ranks));
  for (int rank = 0; rank < options.ranks; ++rank) {
    Child& child = children[static_cast<size_t>(rank)];
    child.file = folder + "/failure" + std::to_string(rank);
    child.pid = fork();
    if (child.pid < 0) return false;
    if (child.pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(2);
      const std::string failure = run_rank(options, folder + "/store", rank);
      if (!failure.empty()) std::ofstream(child.file) << failure;
      std::exit(failure.empty() ? 0 : 1);
    }
  }
  int well = 0;
  for (const Child& child : children) {
    int status = 0;
    waitpid(child.pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) ++well;
    if (WIFSIGNALED(status)) std::printf("a rank was ended by signal %d\n", WTERMSIG(status));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::string first;
  std::getline(std::ifstream(children[0].file), first);
  std::printf("%d of %d ranks well after %.1f s; rank 0: %s\n", well, options.ranks, took.count(),
              first.empty() ? "well" : first.c_str());
  for (const Child& child : children) {
    std::string failure;
    if (options.says.empty() && std::getline(std::ifstream(child.file), failure)) {
      std::printf("%s: %s\n", child.file.c_str(), failure.c_str());
      break;
    }
  }
  std::filesystem::remove_all(folder);
  if (options.says.empty()) return well == options.ranks;
  return well == 0 && first.find(options.says) != std::string::npos;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  for (int i = 0; i < options.repeat; ++i) {
    if (!run_all(options)) return 1;
  }
  return 0;
}
