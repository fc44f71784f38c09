// SPDX-License-Identifier: Apache-2.0
// expressions.cc: sums as expressions over (rank, element), each kept once.

#include "plan/expressions.h"

#include <algorithm>

namespace ciuic::plan {

Value Expressions::input(int rank, int element) {
  const auto [found, added] =
      known_.try_emplace(Key{false, rank, element, {}}, static_cast<int>(expressions_.size()));
  if (added) {
    Expression& expression = expressions_.emplace_back();
    expression.element = element;
    expression.lowest_rank = rank;
    expression.times.assign(size_, 0);
    expression.times[rank] = 1;
  }
  return found->second;
}

Value Expressions::fold(const std::vector<Value>& operands, bool final, int rank) {
  const auto [found, added] =
      known_.try_emplace(Key{final, -1, -1, operands}, static_cast<int>(expressions_.size()));
  if (!added) {
    int& made_by = expressions_[found->second].made_by;
    if (made_by != rank) made_by = -2;
    return found->second;
  }
  Expression expression;
  expression.operands = operands;
  expression.final = final;
  expression.made_by = rank;
  expression.element = expressions_[operands.front()].element;
  expression.lowest_rank = expressions_[operands.front()].lowest_rank;
  expression.times.assign(size_, 0);
  int last_lowest = -1;
  for (const Value operand : operands) {
    const Expression& part = expressions_[operand];
    if (part.element != expression.element) expression.element = -1;
    expression.ordered &= part.ordered && part.lowest_rank > last_lowest;
    last_lowest = part.lowest_rank;
    expression.lowest_rank = std::min(expression.lowest_rank, part.lowest_rank);
    for (int other = 0; other < size_; ++other) expression.times[other] += part.times[other];
  }
  expressions_.push_back(std::move(expression));
  return found->second;
}

}  // namespace ciuic::plan
