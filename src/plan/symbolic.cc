// SPDX-License-Identifier: Apache-2.0
// symbolic.cc: what stands in every rank's output when the plans have run, as expressions.

#include "plan/symbolic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "plan/expressions.h"
#include "plan/uneven.h"
#include "plan/validate.h"

namespace ciuic::plan {

namespace {

// Partitions that have no common refinement with fewer parts are refused.
constexpr int kMaxElements = 1 << 16;

Status invalid(const std::string& what) { return Status(StatusCode::kInvalidArgument, what); }

// The steps of all ranks, each after those that it comes after and after the sends that it
// receives.
class Run {
 public:
  Run(const Claim& claim, const std::vector<Plan>& plans, const std::vector<Message>& messages)
      : claim_(claim),
        plans_(plans),
        messages_(messages),
        size_(static_cast<int>(plans.size())),
        expressions_(size_) {}

  Status prepare() {
    int64_t elements = 1;
    for (const Plan& plan : plans_) {
      for (const Partition& partition : plan.partitions) {
        if (partition.unit == Partition::Unit::kEach || partition.blocks == 0) continue;
        elements = std::lcm(elements, int64_t{partition.blocks});
        if (elements > kMaxElements) return invalid("the partitions are too different");
      }
    }
    elements_ = static_cast<int>(elements);
    for (int rank = 0; rank < size_; ++rank) CIUIC_RETURN_IF_ERROR(check_partitions(rank));
    return sort_steps();
  }

  // Out of place and, where the operation can be, in place. `pattern` is one of uneven_counts(), or
  // -1: all blocks have the same size.
  Status run(int pattern) {
    expressions_ = Expressions(size_);  // elements are other ranks' under other counts
    counts_.clear();
    for (int rank = 0; pattern >= 0 && rank < size_; ++rank) {
      counts_.push_back(uneven_counts(claim_.operation, size_, rank, claim_.root, pattern));
    }
    CIUIC_RETURN_IF_ERROR(run_placed(/*in_place=*/false));
    return allows_in_place(claim_.operation) ? run_placed(/*in_place=*/true) : Status();
  }

  const Expressions& expressions() const { return expressions_; }
  Value output_of(int rank, int element) { return at(rank, Space::kOutput, element); }
  int elements() const { return elements_; }

 private:
  Status run_placed(bool in_place) {
    in_place_ = in_place;
    payloads_.assign(messages_.size(), {});
    memory_.assign(size_, {});
    for (int rank = 0; rank < size_; ++rank) {
      for (int space = 0; space < kSpaces; ++space) {
        memory_[rank][space].assign(elements_of(rank, static_cast<Space>(space)), kUndefined);
      }
      const bool has_input = shape(rank).input > 0;
      const int inputs = has_input ? elements_of(rank, Space::kInput) : 0;
      for (int element = 0; element < inputs; ++element) {
        at(rank, Space::kInput, element) = expressions_.input(rank, element);
      }
    }
    for (const auto& [rank, number] : sorted_) CIUIC_RETURN_IF_ERROR(run_step(rank, number));
    if (claim_.operation == Operation::kBarrier) return check_barrier();
    for (int rank = 0; rank < size_; ++rank) CIUIC_RETURN_IF_ERROR(check_output(rank));
    return {};
  }

  Status wrong(int rank, int number, const std::string& what) const {
    return invalid(fmt::format("rank {}, {}: {}{}", rank, step_text(plans_[rank], number), what,
                               circumstances()));
  }

  std::string circumstances() const {
    std::string text = counts_.empty() ? "" : " (uneven counts)";
    if (in_place_) text += " (in place)";
    return text;
  }

  Shape shape(int rank) const { return shape_of(claim_.operation, size_, rank, claim_.root); }

  Elements place(int rank, BlockRange range) const {
    return plans_[rank].elements(range, elements_, counts_.empty() ? nullptr : &counts_[rank]);
  }

  int elements_of(int rank, Space space) const {
    const int blocks = plans_[rank].partitions[static_cast<int>(space)].blocks;
    return static_cast<int>(place(rank, {space, 0, blocks}).size);
  }

  // The buffers must be as large as the operation's, and lie where they lie in place.
  Status check_partitions(int rank) const {
    const Plan& plan = plans_[rank];
    const Shape wanted = shape(rank);
    const auto wrong_plan = [rank](const std::string& what) {
      return invalid(fmt::format("plan of rank {}: {}", rank, what));
    };
    if (wanted.input > 0 && elements_of(rank, Space::kInput) != wanted.input * elements_) {
      return wrong_plan("its input is not the operation's");
    }
    if (wanted.output > 0 && elements_of(rank, Space::kOutput) != wanted.output * elements_) {
      return wrong_plan("its output is not the operation's");
    }
    if (wanted.input == 0 || wanted.output == 0 || !allows_in_place(claim_.operation)) return {};
    if (!plan.allows_in_place) return wrong_plan("must allow to be in place");
    if (plan.input_offset != wanted.input_offset) {
      return wrong_plan(fmt::format("in place, its input_offset is {}", wanted.input_offset));
    }
    return {};
  }

  Status sort_steps() {
    std::vector<int> base(size_ + 1, 0);
    for (int rank = 0; rank < size_; ++rank) {
      base[rank + 1] = base[rank] + static_cast<int>(plans_[rank].steps.size());
    }
    std::vector<int> waits(base[size_], 0);
    std::vector<std::vector<int>> next(base[size_]);
    const auto edge = [&](int from, int to) {
      next[from].push_back(to);
      ++waits[to];
    };
    incoming_.resize(size_);
    outgoing_.resize(size_);
    for (int rank = 0; rank < size_; ++rank) {
      const std::vector<Step>& steps = plans_[rank].steps;
      incoming_[rank].resize(steps.size());
      outgoing_[rank].resize(steps.size());
      for (int number = 0; number < static_cast<int>(steps.size()); ++number) {
        for (const Dependency& dependency : steps[number].after) {
          edge(base[rank] + dependency.step, base[rank] + number);
        }
      }
    }
    for (size_t index = 0; index < messages_.size(); ++index) {
      const Message& message = messages_[index];
      edge(base[message.sender] + message.send_step, base[message.receiver] + message.receive_step);
      outgoing_[message.sender][message.send_step].push_back(static_cast<int>(index));
      incoming_[message.receiver][message.receive_step].push_back(static_cast<int>(index));
    }
    std::vector<int> ready;
    for (int node = 0; node < base[size_]; ++node) {
      if (waits[node] == 0) ready.push_back(node);
    }
    while (!ready.empty()) {
      const int node = ready.back();
      ready.pop_back();
      const int rank =
          static_cast<int>(std::upper_bound(base.begin(), base.end(), node) - base.begin()) - 1;
      sorted_.emplace_back(rank, node - base[rank]);
      for (const int later : next[node]) {
        if (--waits[later] == 0) ready.push_back(later);
      }
    }
    if (static_cast<int>(sorted_.size()) < base[size_]) return invalid(cycle_text(base, waits));
    return {};
  }

  std::string cycle_text(const std::vector<int>& base, const std::vector<int>& waits) const {
    for (int rank = 0; rank < size_; ++rank) {
      for (int number = 0; number < base[rank + 1] - base[rank]; ++number) {
        if (waits[base[rank] + number] == 0) continue;
        return fmt::format("deadlock: rank {}, {} waits for itself", rank,
                           step_text(plans_[rank], number));
      }
    }
    return "deadlock";
  }

  Value& at(int rank, Space space, int element) {
    const Plan& plan = plans_[rank];
    const bool in_both = in_place_ && space != Space::kScratch && plan.partitions[0].blocks > 0 &&
                         plan.partitions[1].blocks > 0;
    // What input and output share is kept where the larger of them is.
    const bool in_output = plan.partitions[0].blocks <= plan.partitions[1].blocks;
    if (in_both && space == Space::kInput && in_output) {
      element += static_cast<int>(place(rank, {Space::kOutput, plan.input_offset, 0}).begin);
      space = Space::kOutput;
    } else if (in_both && space == Space::kOutput && !in_output) {
      element += static_cast<int>(place(rank, {Space::kInput, -plan.input_offset, 0}).begin);
      space = Space::kInput;
    }
    return memory_[rank][static_cast<int>(space)][element];
  }

  std::vector<Value> read(int rank, BlockRange range) {
    std::vector<Value> values;
    const Elements elements = place(rank, range);
    for (int64_t element = 0; element < elements.size; ++element) {
      values.push_back(at(rank, range.space, static_cast<int>(elements.begin + element)));
    }
    return values;
  }

  void write(int rank, BlockRange range, const std::vector<Value>& values) {
    const int begin = static_cast<int>(place(rank, range).begin);
    for (int element = 0; element < static_cast<int>(values.size()); ++element) {
      at(rank, range.space, begin + element) = values[element];
    }
  }

  Status run_step(int rank, int number) {
    const Step& step = plans_[rank].steps[number];
    // Nothing is moved in a barrier; what counts there is who comes after whom.
    if (claim_.operation == Operation::kBarrier) return {};
    std::vector<Value> values;
    if (step.kind == StepKind::kReceive) {
      values = payloads_[incoming_[rank][number].front()];
    } else {
      values = read(rank, step.source);
      if (std::count(values.begin(), values.end(), kUndefined) > 0) {
        return wrong(rank, number, "reads what nobody wrote");
      }
    }
    if (step.kind == StepKind::kReduce) CIUIC_RETURN_IF_ERROR(fold(rank, number, &values));
    if (step.kind == StepKind::kSend) {
      for (const int message : outgoing_[rank][number]) payloads_[message] = values;
    } else {
      write(rank, step.target, values);
    }
    return {};
  }

  Status fold(int rank, int number, std::vector<Value>* values) {
    const Step& step = plans_[rank].steps[number];
    const bool own_raw = step.source.space == Space::kInput;
    // Messages are in the order of their senders, as peers are.
    const std::vector<int>& incoming = incoming_[rank][number];
    for (size_t element = 0; element < values->size(); ++element) {
      std::vector<Value> operands;
      for (size_t peer = 0; peer <= incoming.size(); ++peer) {
        const bool own = static_cast<int>(peer) == step.own_place;
        if (own)
          CIUIC_RETURN_IF_ERROR(check_operand(rank, number, (*values)[element], own_raw, -1));
        if (own) operands.push_back((*values)[element]);
        if (peer == incoming.size()) break;
        const Value received = payloads_[incoming[peer]][element];
        CIUIC_RETURN_IF_ERROR(
            check_operand(rank, number, received, step.received_raw, step.peers[peer]));
        operands.push_back(received);
      }
      const Value sum = expressions_.fold(operands, step.final, rank);
      const Expression& expression = expressions_.at(sum);
      if (expression.element < 0) return wrong(rank, number, "adds up different elements");
      for (int other = 0; other < size_; ++other) {
        if (expression.times[other] <= 1) continue;
        return wrong(rank, number,
                     fmt::format("rank {}'s contribution is in it {} times", other,
                                 expression.times[other]));
      }
      const auto& times = expression.times;
      const bool complete = std::count(times.begin(), times.end(), 1) == size_;
      if (complete && !step.final) return wrong(rank, number, "is complete but not marked final");
      if (!complete && step.final) return wrong(rank, number, "is marked final but not complete");
      (*values)[element] = sum;
    }
    return {};
  }

  // `peer`: whose operand; -1: this rank's own.
  Status check_operand(int rank, int number, Value value, bool read_as_raw, int peer) const {
    const Expression& operand = expressions_.at(value);
    const std::string whose = peer < 0 ? "its own operand" : fmt::format("rank {}'s operand", peer);
    if (operand.final) return wrong(rank, number, whose + " is a final result");
    if (operand.raw() && !read_as_raw) return wrong(rank, number, whose + " is raw, not marked so");
    if (!operand.raw() && read_as_raw)
      return wrong(rank, number, whose + " is marked raw, but is not");
    return {};
  }

  Status bad_output(int rank, int block, const std::string& what) const {
    return invalid(fmt::format("rank {}, output {}: {}{}", rank, block, what, circumstances()));
  }

  // Which element of whose input belongs into `element` of an output, the `index`-th of `block`.
  struct Origin {
    int rank = 0;  // -1: of all, reduced
    int64_t element = 0;
  };
  Origin origin(int rank, int block, int64_t index, int64_t element) const {
    const auto begin = [&](int giver) { return place(giver, input(rank)).begin; };
    switch (claim_.operation) {
      case Operation::kBroadcast: return {claim_.root, element};
      case Operation::kAllGather:
      case Operation::kGather: return {block, index};
      case Operation::kAllToAll: return {block, begin(block) + index};
      case Operation::kScatter: return {claim_.root, begin(claim_.root) + element};
      case Operation::kReduceScatter: return {-1, begin(rank) + element};
      default: return {-1, element};
    }
  }

  Status check_output(int rank) {
    const int blocks = plans_[rank].partitions[static_cast<int>(Space::kOutput)].blocks;
    for (int block = 0; shape(rank).output > 0 && block < blocks; ++block) {
      const Elements elements = place(rank, output(block));
      for (int64_t index = 0; index < elements.size; ++index) {
        const int element = static_cast<int>(elements.begin + index);
        const Origin from = origin(rank, block, index, element);
        const Value value = at(rank, Space::kOutput, element);
        if (value == kUndefined) return bad_output(rank, block, "was never written");
        const Expression& expression = expressions_.at(value);
        if (expression.element != from.element) {
          return bad_output(rank, block, "holds other elements");
        }
        if (from.rank < 0) {
          CIUIC_RETURN_IF_ERROR(check_result(rank, block, element, value));
        } else if (!expression.raw() || expression.rank() != from.rank) {
          return bad_output(rank, block, fmt::format("is not what rank {} gave", from.rank));
        }
      }
    }
    return {};
  }

  Status check_result(int rank, int block, int element, Value value) {
    const Expression& expression = expressions_.at(value);
    const auto bad = [&](const std::string& what) { return bad_output(rank, block, what); };
    for (int other = 0; other < size_; ++other) {
      if (expression.times[other] == 1) continue;
      return bad(
          fmt::format("rank {}'s contribution is in it {} times", other, expression.times[other]));
    }
    if (size_ > 1 && !expression.final) return bad("was not marked final");
    if (claim_.operation == Operation::kAllReduce && at(0, Space::kOutput, element) != value) {
      return bad("is another expression than on rank 0");
    }
    if (expression.made_by == -2 && !expression.ordered) {
      return bad("is added up by several ranks, not with the lower ranks to the left");
    }
    return {};
  }

  // A rank's barrier may end only after every rank's has begun: who has begun is passed on by
  // messages, from a step to those that come after it.
  Status check_barrier() const {
    std::vector<std::vector<std::vector<bool>>> heard(size_);
    std::vector<std::vector<bool>> ended(size_, std::vector<bool>(size_, false));
    for (int rank = 0; rank < size_; ++rank) heard[rank].resize(plans_[rank].steps.size());
    for (const auto& [rank, number] : sorted_) {
      std::vector<bool>& own = heard[rank][number];
      own.assign(size_, false);
      own[rank] = true;
      const auto add = [&own](const std::vector<bool>& other) {
        for (size_t index = 0; index < own.size(); ++index) own[index] = own[index] || other[index];
      };
      for (const Dependency& dependency : plans_[rank].steps[number].after) {
        add(heard[rank][dependency.step]);
      }
      for (const int message : incoming_[rank][number]) {
        add(heard[messages_[message].sender][messages_[message].send_step]);
      }
      for (int other = 0; other < size_; ++other) {
        if (own[other]) ended[rank][other] = true;
      }
    }
    for (int rank = 0; rank < size_; ++rank) {
      for (int other = 0; other < size_; ++other) {
        if (rank == other || ended[rank][other]) continue;
        return invalid(fmt::format("rank {} may end before rank {} has begun", rank, other));
      }
    }
    return {};
  }

  const Claim claim_;
  const std::vector<Plan>& plans_;
  const std::vector<Message>& messages_;
  const int size_;
  int elements_ = 1;  // of a buffer of the call's count
  bool in_place_ = false;
  std::vector<Counts> counts_;  // by rank; none: all blocks have `elements_`
  Expressions expressions_;
  std::vector<std::pair<int, int>> sorted_;              // (rank, step)
  std::vector<std::vector<std::vector<int>>> incoming_;  // messages of [rank][step]
  std::vector<std::vector<std::vector<int>>> outgoing_;
  std::vector<std::vector<Value>> payloads_;
  std::vector<std::array<std::vector<Value>, kSpaces>> memory_;
};

}  // namespace

Status check_values(const Claim& claim, const std::vector<Plan>& plans,
                    const std::vector<Message>& messages) {
  Run run(claim, plans, messages);
  CIUIC_RETURN_IF_ERROR(run.prepare());
  CIUIC_RETURN_IF_ERROR(run.run(/*pattern=*/-1));
  for (int pattern = 0; claim.uneven && pattern < kUnevenPatterns; ++pattern) {
    CIUIC_RETURN_IF_ERROR(run.run(pattern));
  }
  return {};
}

// Whether the raw contributions of every host are operands of one and the same fold.
static bool folds_hosts(const Expressions& expressions, Value value, const Layout& layout) {
  const Expression& expression = expressions.at(value);
  if (expression.raw()) return layout.ranks_on(layout.host_of(expression.rank())).size() == 1;
  std::vector<int> raw(layout.hosts(), 0);
  for (const Value operand : expression.operands) {
    const Expression& part = expressions.at(operand);
    if (part.raw()) {
      ++raw[layout.host_of(part.rank())];
    } else if (!folds_hosts(expressions, operand, layout)) {
      return false;
    }
  }
  for (int host = 0; host < layout.hosts(); ++host) {
    if (raw[host] != 0 && raw[host] != static_cast<int>(layout.ranks_on(host).size())) return false;
  }
  return true;
}

bool rounds_once_a_host(const Claim& claim, const std::vector<Plan>& plans, const Layout& layout) {
  const Result<std::vector<Message>> messages = match(plans);
  if (!messages.ok()) return false;
  Run run(claim, plans, *messages);
  if (!run.prepare().ok() || !run.run(/*pattern=*/-1).ok()) return false;
  const int rank = claim.operation == Operation::kReduce ? claim.root : 0;
  for (int element = 0; element < run.elements(); ++element) {
    if (!folds_hosts(run.expressions(), run.output_of(rank, element), layout)) return false;
  }
  return true;
}

}  // namespace ciuic::plan
