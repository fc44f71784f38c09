// SPDX-License-Identifier: Apache-2.0
// sim_main.cc: ciuic_sim, which runs many seeds and says how to replay those that fail.

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "sim/simulation.h"

namespace {

constexpr const char* kUsage =
    "usage: ciuic_sim [--seeds N] [--first K] [--ranks LOW..HIGH] [--calls N] [--faults PERCENT] "
    "[--verbose] [--trace]\n";

struct Arguments {
  int64_t seeds = 100;
  int64_t first = 1;
  ciuic::sim::ScenarioOptions scenario;
  std::string ranks = "1..12";
  bool verbose = false;
  bool trace = false;
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
         options->ranks_max <= 1000;
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
    if (name == "--calls") ok = take_number(value, &arguments->scenario.calls_max);
    if (name == "--faults") ok = take_number(value, &arguments->scenario.fault_percent);
    if (name == "--ranks") {
      arguments->ranks = value;
      ok = take_ranks(value, &arguments->scenario);
    }
    if (!ok) return false;
  }
  return arguments->scenario.calls_max >= 1;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, &arguments)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  int64_t failed = 0;
  int64_t ok = 0;
  int64_t ended = 0;
  uint64_t steps = 0;
  for (int64_t seed = arguments.first; seed < arguments.first + arguments.seeds; ++seed) {
    ciuic::sim::Scenario scenario =
        ciuic::sim::draw_scenario(static_cast<uint64_t>(seed), arguments.scenario);
    if (arguments.verbose) fmt::print("seed {}: {}\n", seed, scenario.text());
    if (arguments.verbose) std::fflush(stdout);
    scenario.network.prints = arguments.trace;
    const ciuic::sim::Outcome outcome = ciuic::sim::simulate(scenario);
    ok += outcome.operations_ok;
    ended += outcome.operations_ended;
    steps += outcome.steps;
    if (arguments.verbose) {
      fmt::print("  {} operations ended well, {} in an error, {} steps, {} ns, digest {:016x}\n",
                 outcome.operations_ok, outcome.operations_ended, outcome.steps, outcome.ended_at,
                 outcome.digest);
    }
    if (outcome.ok()) continue;
    ++failed;
    fmt::print("seed {} failed: {}\n", seed, scenario.text());
    for (const std::string& failure : outcome.failures) fmt::print("  {}\n", failure);
    fmt::print(
        "  replay: ciuic_sim --seeds 1 --first {} --ranks {} --calls {} --faults {} --verbose\n",
        seed, arguments.ranks, arguments.scenario.calls_max, arguments.scenario.fault_percent);
  }
  fmt::print("operations: {} ended well, {} in an error; {} steps\n", ok, ended, steps);
  fmt::print("seeds {} failed {}\n", arguments.seeds, failed);
  return failed == 0 ? 0 : 1;
}
