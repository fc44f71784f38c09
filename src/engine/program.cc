// SPDX-License-Identifier: Apache-2.0
// program.cc: builds the tables of a plan.

#include "engine/program.h"

#include <algorithm>

#include "base/assert.h"

namespace ciuic::engine {

static void link_streams(const plan::Plan& plan, Program* program) {
  const int count = static_cast<int>(plan.streams.size());
  std::vector<int> by_lane(count);
  for (int s = 0; s < count; ++s) by_lane[s] = s;
  // Last first, so that each peer's list ends up beginning with its lowest lane.
  std::stable_sort(by_lane.begin(), by_lane.end(),
                   [&](int a, int b) { return plan.streams[a].lane > plan.streams[b].lane; });
  for (int stream : by_lane) {
    int& first = program->first_stream[plan.streams[stream].peer];
    program->next_stream[stream] = first;
    first = stream;
    if (plan.streams[stream].sends > 0) program->eager_stream[plan.streams[stream].peer] = stream;
  }
}

static void widen(plan::BlockRange* range, const plan::BlockRange& touched) {
  if (touched.space != plan::Space::kScratch || touched.count == 0) return;
  if (range->count == 0) {
    *range = touched;
    return;
  }
  const int end = std::max(range->first + range->count, touched.first + touched.count);
  range->first = std::min(range->first, touched.first);
  range->count = end - range->first;
}

Program compile(std::shared_ptr<const plan::Plan> plan, int ranks) {
  Program program;
  program.first_stream.assign(ranks, -1);
  program.eager_stream.assign(ranks, -1);
  program.next_stream.assign(plan->streams.size(), -1);
  program.receives.resize(plan->streams.size());
  link_streams(*plan, &program);
  for (size_t s = 0; s < plan->streams.size(); ++s) {
    program.receives[s].resize(plan->streams[s].receives);
  }
  for (size_t i = 0; i < plan->steps.size(); ++i) {
    const plan::Step& step = plan->steps[i];
    widen(&program.scratch, step.source);
    widen(&program.scratch, step.target);
    program.first_place.push_back(program.places);
    program.places += static_cast<int>(step.peers.size());
    CIUIC_ASSERT(step.places.size() == step.peers.size());
    if (step.kind == plan::StepKind::kSend) continue;
    for (size_t p = 0; p < step.places.size(); ++p) {
      const plan::StreamPlace& place = step.places[p];
      program.receives[place.stream][place.position] = {static_cast<int>(i), static_cast<int>(p)};
    }
  }
  program.plan = std::move(plan);
  return program;
}

}  // namespace ciuic::engine
