// SPDX-License-Identifier: Apache-2.0
// expressions.h: sums as expressions over (rank, element), each kept once, so that equal ones have
// equal numbers.
#pragma once

#include <map>
#include <tuple>
#include <vector>

namespace ciuic::plan {

using Value = int;
inline constexpr Value kUndefined = -1;

struct Expression {
  std::vector<Value> operands;  // left to right; none: one rank's input
  int element = 0;              // -1: of different elements, which is always wrong
  bool final = false;           // was made by a step that says so
  int lowest_rank = 0;          // of those in it
  std::vector<int> times;       // how often each rank's contribution is in it
  bool ordered = true;          // operands by their lowest ranks, all the way down
  int made_by = -1;             // the rank that folded it; -2: several did

  bool raw() const { return operands.empty(); }
  int rank() const { return lowest_rank; }  // of a raw one
};

class Expressions {
 public:
  explicit Expressions(int size) : size_(size) {}

  Value input(int rank, int element);
  Value fold(const std::vector<Value>& operands, bool final, int rank);
  const Expression& at(Value value) const { return expressions_[value]; }

 private:
  using Key = std::tuple<bool, int, int, std::vector<Value>>;  // final, rank, element, operands

  int size_;
  std::vector<Expression> expressions_;
  std::map<Key, Value> known_;
};

}  // namespace ciuic::plan
