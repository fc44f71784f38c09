// SPDX-License-Identifier: Apache-2.0
// plan_file_fuzz.cc: a user's plan is refused with its place named, or is proved or refuted.

#include "input.h"
#include "plan/plan_json.h"
#include "plan/prover.h"

using namespace ciuic;

// What the prover does in a moment; its work grows with the square of the steps.
static bool is_small(const plan::PlanFile& file) {
  size_t steps = 0;
  for (const plan::Plan& plan : file.plans) {
    steps += plan.steps.size();
    for (const plan::Partition& partition : plan.partitions) {
      if (partition.blocks > 64) return false;
    }
  }
  return steps <= 128 && file.plans.size() <= 8;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<plan::PlanFile> file = plan::plan_file_from_json(text);
  if (!file.ok()) {
    fuzz::require(file.status().code() == StatusCode::kInvalidArgument, "a typed error");
    fuzz::require_text(file.status());
    return 0;
  }
  const std::string written = plan::to_json(*file);
  const Result<plan::PlanFile> again = plan::plan_file_from_json(written);
  fuzz::require(again.ok() && plan::to_json(*again) == written, "a plan reads the same");
  if (!is_small(*file)) return 0;
  fuzz::require_text(plan::prove({.operation = file->operation, .root = file->root}, file->plans));
  return 0;
}
