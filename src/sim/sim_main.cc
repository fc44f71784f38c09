// SPDX-License-Identifier: Apache-2.0
// sim_main.cc: ciuic_sim, which runs many seeds and says how to replay those that fail.
//
// Seeds are shared out among processes, since a run has its process's log. Where one dies, the seed
// that it was at has failed, and another goes on with the next.

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "sim/simulation.h"

namespace {

using ciuic::sim::FaultKind;

constexpr const char* kUsage =
    "usage: ciuic_sim [--seeds N] [--first K] [--jobs N] [--ranks LOW..HIGH] [--calls N]\n"
    "                 [--faults PERCENT] [--only FAULT] [--verbose] [--trace]\n";

struct Arguments {
  int64_t seeds = 100;
  int64_t first = 1;
  int64_t jobs = 1;
  ciuic::sim::ScenarioOptions scenario;
  std::string ranks = "1..64";
  bool verbose = false;
  bool trace = false;
};

// What all runs come to; shared with the processes that do them, each of which has its own.
struct Totals {
  int64_t seed = 0;  // that is being run
  int64_t failed = 0;
  int64_t ok = 0;
  int64_t ended = 0;
  int64_t survived = 0;
  uint64_t steps = 0;
  std::array<int64_t, ciuic::sim::kFaultKinds> drawn{};
  std::array<int64_t, ciuic::sim::kFaultKinds> happened{};  // of these

  void add(const Totals& other) {
    failed += other.failed;
    ok += other.ok;
    ended += other.ended;
    survived += other.survived;
    steps += other.steps;
    for (size_t i = 0; i < drawn.size(); ++i) {
      drawn[i] += other.drawn[i];
      happened[i] += other.happened[i];
    }
  }
};

template <typename T>
bool take_number(std::string_view text, T* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size() && *number >= 0;
}

bool take_ranks(std::string_view text, ciuic::sim::ScenarioOptions* options) {
  const size_t dots = text.find("..");
  const std::string_view low = text.substr(0, dots);
  const std::string_view high = dots == std::string_view::npos ? low : text.substr(dots + 2);
  return take_number(low, &options->ranks_min) && take_number(high, &options->ranks_max) &&
         options->ranks_min >= 1 && options->ranks_max >= options->ranks_min &&
         options->ranks_max <= 1024;
}

bool take_kind(std::string_view text, FaultKind* kind) {
  for (int i = 1; i < ciuic::sim::kFaultKinds; ++i) {
    *kind = static_cast<FaultKind>(i);
    if (text == ciuic::sim::name_of(*kind)) return true;
  }
  return false;
}

bool parse(int argc, char** argv, Arguments* arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--trace") {
      arguments->trace = true;
      continue;
    }
    if (name == "--verbose") {
      arguments->verbose = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const std::string_view value = argv[++i];
    bool ok = false;
    if (name == "--seeds") ok = take_number(value, &arguments->seeds);
    if (name == "--first") ok = take_number(value, &arguments->first);
    if (name == "--jobs") ok = take_number(value, &arguments->jobs) && arguments->jobs > 0;
    if (name == "--calls") ok = take_number(value, &arguments->scenario.calls_max);
    if (name == "--faults") ok = take_number(value, &arguments->scenario.fault_percent);
    if (name == "--only") ok = take_kind(value, &arguments->scenario.only);
    if (name == "--ranks") {
      arguments->ranks = value;
      ok = take_ranks(value, &arguments->scenario);
    }
    if (!ok) return false;
  }
  return arguments->scenario.calls_max >= 1;
}

void print_replay(int64_t seed, const Arguments& arguments) {
  const FaultKind only = arguments.scenario.only;
  fmt::print(
      "  replay: ciuic_sim --seeds 1 --first {} --ranks {} --calls {} --faults {}{}{} "
      "--verbose\n",
      seed, arguments.ranks, arguments.scenario.calls_max, arguments.scenario.fault_percent,
      only == FaultKind::kNone ? "" : " --only ",
      only == FaultKind::kNone ? "" : ciuic::sim::name_of(only));
  std::fflush(stdout);
}

void run(int64_t seed, const Arguments& arguments, Totals* totals) {
  totals->seed = seed;
  ciuic::sim::Scenario scenario =
      ciuic::sim::draw_scenario(static_cast<uint64_t>(seed), arguments.scenario);
  if (arguments.verbose) fmt::print("seed {}: {}\n", seed, scenario.text());
  std::fflush(stdout);
  scenario.network.prints = arguments.trace;
  const ciuic::sim::Outcome outcome = ciuic::sim::simulate(scenario);
  totals->ok += outcome.operations_ok;
  totals->ended += outcome.operations_ended;
  totals->survived += outcome.survivor_groups;
  totals->steps += outcome.steps;
  if (scenario.faults.empty()) ++totals->drawn[0];
  for (size_t i = 0; i < scenario.faults.size(); ++i) {
    const auto kind = static_cast<size_t>(scenario.faults[i].kind);
    ++totals->drawn[kind];
    if (outcome.happened[i]) ++totals->happened[kind];
  }
  if (arguments.verbose) {
    fmt::print("  {} operations ended well, {} in an error, {} steps, {} ns, digest {:016x}\n",
               outcome.operations_ok, outcome.operations_ended, outcome.steps, outcome.ended_at,
               outcome.digest);
    for (const std::string& error : outcome.errors) fmt::print("  error: {}\n", error);
  }
  if (outcome.ok()) return;
  ++totals->failed;
  std::string text = fmt::format("seed {} failed: {}\n", seed, scenario.text());
  for (const std::string& failure : outcome.failures) text += "  " + failure + "\n";
  fmt::print("{}", text);
  print_replay(seed, arguments);
}

// Runs every `jobs`-th seed from `seed` on.
pid_t start_worker(int64_t seed, const Arguments& arguments, Totals* totals) {
  std::fflush(stdout);
  totals->seed = seed;
  const pid_t worker = fork();
  if (worker != 0) return worker;
  for (; seed < arguments.first + arguments.seeds; seed += arguments.jobs) {
    run(seed, arguments, totals);
  }
  std::fflush(stdout);
  _exit(0);
}

bool run_all(const Arguments& arguments, Totals* all) {
  const size_t bytes = static_cast<size_t>(arguments.jobs) * sizeof(Totals);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  auto* totals = static_cast<Totals*>(memory);
  std::map<pid_t, Totals*> workers;
  for (int64_t job = 0; job < arguments.jobs; ++job) {
    workers[start_worker(arguments.first + job, arguments, new (&totals[job]) Totals())] =
        &totals[job];
  }
  while (!workers.empty()) {
    int how = 0;
    const auto ended = workers.find(wait(&how));
    if (ended == workers.end()) return false;
    Totals* of_worker = ended->second;
    workers.erase(ended);
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0) continue;
    ++of_worker->failed;
    fmt::print("seed {} failed: its process has died of signal {}\n", of_worker->seed,
               WTERMSIG(how));
    print_replay(of_worker->seed, arguments);
    workers[start_worker(of_worker->seed + arguments.jobs, arguments, of_worker)] = of_worker;
  }
  for (int64_t job = 0; job < arguments.jobs; ++job) all->add(totals[job]);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, &arguments)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  Totals totals;
  if (!run_all(arguments, &totals)) {
    std::perror("ciuic_sim");
    return 2;
  }
  fmt::print("fault             seeds  in effect\n");
  for (size_t i = 0; i < totals.drawn.size(); ++i) {
    fmt::print("{:<16} {:>6} {:>10}\n", ciuic::sim::name_of(static_cast<FaultKind>(i)),
               totals.drawn[i], totals.happened[i]);
  }
  fmt::print("operations: {} ended well, {} in an error; {} groups of survivors; {} steps\n",
             totals.ok, totals.ended, totals.survived, totals.steps);
  fmt::print("seeds {} failed {}\n", arguments.seeds, totals.failed);
  return totals.failed == 0 ? 0 : 1;
}
