// SPDX-License-Identifier: Apache-2.0
// plan.h: asks which algorithm a call gets, its steps and its predicted cost; writes plans as
// files, and proves what is in files. Nothing is run.
#pragma once

#include <cstdint>
#include <string>

#include "ciuic/export.h"
#include "ciuic/status.h"

namespace ciuic {

struct PlanQuery {
  std::string operation;  // "all_reduce", ..., as their functions are named; no uneven forms
  int ranks = 0;          // 0: as many as the layout has
  std::string layout;     // "4x2", "3+2", or the host of each rank, "0,1,0"; "": one host
  int64_t bytes = 0;      // of the largest input, rounded down to whole blocks; none in a barrier
  std::string dtype = "float32";
  std::string op = "sum";
  std::string algorithm;  // "": the one that the call would get
  int root = 0;
  int rank = -1;  // whose steps; -1: of all

  // The JSON of a plan file (src/plan/plan_json.h): what is asked is about its plans. Operation,
  // ranks, layout, algorithm and root are then the file's, and not looked at here.
  std::string file = {};
};

// One JSON object:
//   {"operation", "algorithm", "chosen", "layout", "hosts", "ranks", "root", "bytes", "count",
//    "dtype", "op", "chunk_bytes", "predicted_us",
//    "plans": [{"rank", "sent_bytes", "scratch_bytes",
//               "steps": [{"kind", "peers", "lane", "source", "target", "bytes", "after",
//                          "own_place", "received_raw", "final"}]}],
//    "totals": {"steps", "messages", "sent_bytes", "most_sent_bytes"}}
//
// The input of a reduce_scatter or all_to_all, and the root's of a scatter, holds a block for each
// rank; "count" is then the elements of a block, "bytes" of the whole input.
//
// A range is {"space", "first", "count"} or null; `after` has {"step", "whole"}. "chosen" tells
// whether the algorithm is the one that the call would get; "root" is null where there is none.
//
// kInvalidArgument: a name that is not known (the message lists those that are), a layout that has
// not as many ranks, an algorithm that the operation does not have on this layout, a root or rank
// outside the group. kUnsupported: an op that the dtype does not have. Of a file also what
// prove_plan() says.
CIUIC_EXPORT Result<std::string> describe_plan(const PlanQuery& query);

// The plans of all ranks as a plan file, for prove_plan() and Communicator::add_plan(). Fails as
// describe_plan().
CIUIC_EXPORT Result<std::string> export_plan(const PlanQuery& query);

// Proves that the plans of a file, run together, are its operation, for every element count and
// every order in which ranks may proceed (src/plan/prover.h). kInvalidArgument: a file that is not
// well formed, or plans that are wrong; the message names rank, step and block.
CIUIC_EXPORT Status prove_plan(const std::string& file);

}  // namespace ciuic
