// SPDX-License-Identifier: Apache-2.0
// plan_cases.h: the layouts and operations that the tests of this folder go through.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/layout.h"
#include "plan/prover.h"
#include "plan/registry.h"

namespace ciuic::plan {

struct PlanCase {
  Operation operation;
  Algorithm algorithm;
  Layout layout;
  int root;

  Claim claim() const { return {operation, root, takes_uneven(operation, algorithm)}; }
  std::string text() const {
    return std::string(name_of(operation)) + " " + name_of(algorithm) + " on " + layout.text() +
           " root " + std::to_string(root);
  }
  std::vector<Plan> plans() const {
    std::vector<Plan> plans;
    for (int rank = 0; rank < layout.size(); ++rank) {
      plans.push_back(make(operation, algorithm, layout, rank, root));
    }
    return plans;
  }
};

// Layouts of `size` ranks: one host; all apart; two hosts, as even as can be and 1 + the rest;
// hosts of two; ranks dealt out to two and to three hosts in turn; an uneven mix.
inline std::vector<Layout> layouts_of(int size) {
  std::vector<Layout> layouts;
  const auto add = [&](const std::function<int(int)>& host) {
    std::vector<int> hosts;
    for (int rank = 0; rank < size; ++rank) hosts.push_back(host(rank));
    Layout layout(hosts);
    for (const Layout& known : layouts) {
      if (known == layout) return;
    }
    layouts.push_back(layout);
  };
  add([](int) { return 0; });
  add([](int rank) { return rank; });
  add([&](int rank) { return rank < (size + 1) / 2 ? 0 : 1; });
  add([](int rank) { return rank == 0 ? 0 : 1; });
  add([](int rank) { return rank / 2; });
  add([](int rank) { return rank % 2; });
  add([](int rank) { return rank % 3; });
  add([](int rank) { return rank % 5 == 0 ? 0 : rank % 7; });
  return layouts;
}

inline std::vector<int> roots_of(Operation operation, int size) {
  if (!has_root(operation)) return {0};
  std::vector<int> roots;
  for (int root = 0; root < size; ++root) {
    roots.push_back(root);
  }
  return roots;
}

// Every operation, algorithm, layout and root of `size` ranks.
inline std::vector<PlanCase> cases_of(int size) {
  std::vector<PlanCase> cases;
  for (int number = 0; number < kOperations; ++number) {
    const Operation operation = static_cast<Operation>(number);
    for (const Algorithm algorithm : algorithms_for(operation)) {
      for (const Layout& layout : layouts_of(size)) {
        for (const int root : roots_of(operation, size)) {
          cases.push_back({operation, algorithm, layout, root});
        }
      }
    }
  }
  return cases;
}

}  // namespace ciuic::plan
