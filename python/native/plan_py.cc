// SPDX-License-Identifier: Apache-2.0
// plan_py.cc: plans as ciuic.plan and `ciuic plan` have them: described, written as files, proved,
// and run in the simulator.

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "ciuic/plan.h"
#include "module.h"
#include "plan/layout.h"
#include "plan/plan_json.h"
#include "plan/registry.h"
#include "sim/simulation.h"

namespace ciuic::python {
namespace {

PlanQuery query_of(const std::string& operation, int ranks, const std::string& layout,
                   int64_t bytes, const std::string& dtype, const std::string& op,
                   const std::string& algorithm, int root, int rank, const std::string& file) {
  return {.operation = operation,
          .ranks = ranks,
          .layout = layout,
          .bytes = bytes,
          .dtype = dtype,
          .op = op,
          .algorithm = algorithm,
          .root = root,
          .rank = rank,
          .file = file};
}

std::string value_of(Result<std::string> result) {
  raise_unless_ok(result.status());
  return std::move(*result);
}

// The file's plans must be proved. What was wrong is in "failures".
nb::dict simulate(const std::string& file, uint64_t seed) {
  Result<plan::PlanFile> read = plan::plan_file_from_json(file);
  raise_unless_ok(read.status());
  const sim::Scenario scenario = sim::draw_plan_scenario(seed, *read);
  sim::Outcome outcome;
  {
    const nb::gil_scoped_release no_gil;
    outcome = sim::simulate(scenario);
  }
  nb::dict result;
  result["failures"] = outcome.failures;
  result["operations"] = outcome.operations_ok;  // counted on every rank
  result["steps"] = outcome.steps;
  result["scenario"] = scenario.text();
  return result;
}

// The host of each rank.
std::vector<int> parse_layout(const std::string& text) {
  const Result<plan::Layout> layout = plan::Layout::parse(text);
  raise_unless_ok(layout.status());
  std::vector<int> hosts;
  for (int rank = 0; rank < layout->size(); ++rank) hosts.push_back(layout->host_of(rank));
  return hosts;
}

nb::dict algorithms_of_operations() {
  nb::dict names;
  for (int number = 0; number < plan::kOperations; ++number) {
    const auto operation = static_cast<Operation>(number);
    nb::list known;
    for (const plan::Algorithm each : plan::algorithms_for(operation)) {
      known.append(plan::name_of(each));
    }
    names[name_of(operation)] = nb::tuple(known);
  }
  return names;
}

}  // namespace

void bind_plan(nb::module_& module) {
  module.def(
      "describe_plan",
      [](const std::string& operation, int ranks, const std::string& layout, int64_t bytes,
         const std::string& dtype, const std::string& op, const std::string& algorithm, int root,
         int rank, const std::string& file) {
        return value_of(describe_plan(
            query_of(operation, ranks, layout, bytes, dtype, op, algorithm, root, rank, file)));
      },
      nb::arg("operation"), nb::arg("ranks"), nb::arg("layout"), nb::arg("bytes"), nb::arg("dtype"),
      nb::arg("op"), nb::arg("algorithm"), nb::arg("root"), nb::arg("rank"), nb::arg("file") = "",
      "The JSON of include/ciuic/plan.h.");
  module.def(
      "export_plan",
      [](const std::string& operation, int ranks, const std::string& layout, int64_t bytes,
         const std::string& dtype, const std::string& op, const std::string& algorithm, int root) {
        return value_of(export_plan(
            query_of(operation, ranks, layout, bytes, dtype, op, algorithm, root, -1, "")));
      },
      nb::arg("operation"), nb::arg("ranks"), nb::arg("layout"), nb::arg("bytes"), nb::arg("dtype"),
      nb::arg("op"), nb::arg("algorithm"), nb::arg("root"),
      "A plan file of the plans of all ranks.");
  module.def(
      "prove_plan",
      [](const std::string& file) {
        const Status status = [&] {
          const nb::gil_scoped_release no_gil;
          return prove_plan(file);
        }();
        raise_unless_ok(status);
      },
      nb::arg("file"), "Raises where the plans of a plan file are not its operation.");
  module.def("simulate_plan", &simulate, nb::arg("file"), nb::arg("seed"),
             "Runs a plan file's plans, which are proved, on real engines in a simulated world.");
  module.def("parse_layout", &parse_layout, nb::arg("text"), "The host of each rank.");
  module.attr("algorithms") = algorithms_of_operations();
  module.attr("rooted_operations") = [] {
    nb::list names;
    for (int number = 0; number < plan::kOperations; ++number) {
      const auto operation = static_cast<Operation>(number);
      if (plan::has_root(operation)) names.append(name_of(operation));
    }
    return nb::tuple(names);
  }();
}

}  // namespace ciuic::python
