// SPDX-License-Identifier: Apache-2.0
// prover.h: proves that the plans of all ranks, run together, are the operation they claim to be.
//
// What is proved, for every element count and every order in which ranks and links may proceed, and
// where it is claimed for all counts that differ from rank to rank:
//   form       blocks in bounds; the input is never written; only the root has an output of a
//              reduce or gather, or an input of a broadcast or scatter
//   messages   the k-th send to a peer meets the peer's k-th receive, of the same size
//   races      of two steps that touch a block, one of them writing, one comes after the other, as
//              pipelined chunks where the ranges are the same, else as a whole; also in place
//   values     every contribution is in every result exactly once; `final` and `received_raw` are
//              set where they must be and nowhere else; all ranks get the same bits: what several
//              ranks add up is the identical expression, lower ranks to the left
//   progress   no deadlock where nothing is buffered between ranks (a chunk moves when its receiver
//              can use it); sequence_model.h looks at sequences, under the real flow control
//
// Proved symbolically: a value is an expression over (rank, element), and elements are the common
// refinement of all partitions. Needs memory in proportion to steps squared of a rank, an eighth of
// a byte each.
#pragma once

#include <vector>

#include "ciuic/status.h"
#include "plan/plan.h"
#include "plan/registry.h"

namespace ciuic::plan {

struct Claim {
  Operation operation = Operation::kAllReduce;
  int root = 0;         // where the operation has one
  bool uneven = false;  // it does for counts that differ from rank to rank as well
};

// `plans` has the finished plan of every rank. kInvalidArgument names rank, step and block, and
// what is wrong with them.
Status prove(const Claim& claim, const std::vector<Plan>& plans);

}  // namespace ciuic::plan
