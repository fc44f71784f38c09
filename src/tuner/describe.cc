// SPDX-License-Identifier: Apache-2.0
// describe.cc: the answer to a PlanQuery, as JSON, and the plans it is about as a file.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/dtype_text.h"
#include "base/printable.h"
#include "ciuic/dtype.h"
#include "ciuic/plan.h"
#include "plan/plan_json.h"
#include "plan/prover.h"
#include "plan/registry.h"
#include "plan/validate.h"
#include "tuner/cost.h"
#include "tuner/tuner.h"

namespace ciuic {

namespace {

using Json = nlohmann::ordered_json;
using plan::Algorithm;
using plan::Layout;
using plan::Operation;

// Above, plans of all ranks would fill the memory: an all-reduce has about n steps on each.
constexpr int kMostRanks = 512;

Status invalid(const std::string& what) { return Status(StatusCode::kInvalidArgument, what); }

// A query with its names looked up.
struct Question {
  tuner::Call call;
  Layout layout = Layout::one_host(1);
  tuner::Choice choice;
  bool chosen = true;
  tuner::TuningTable table;
  std::string algorithm;
  std::vector<plan::Plan> plans;  // by rank

  tuner::Load load() const { return {call.count, call.dtype, choice.chunk_bytes}; }
  int root() const { return plan::has_root(call.operation) ? call.root : 0; }
};

Status read_operation(const PlanQuery& query, Question* question) {
  const std::optional<Operation> operation = plan::operation_named(query.operation);
  if (!operation) {
    std::vector<const char*> known;
    for (int number = 0; number < plan::kOperations; ++number) {
      known.push_back(name_of(static_cast<Operation>(number)));
    }
    return invalid(fmt::format("no operation '{}'; there are {}", printable(query.operation, 40),
                               fmt::join(known, ", ")));
  }
  question->call.operation = *operation;
  return {};
}

Status read_layout(const PlanQuery& query, Question* question) {
  if (query.ranks < 0 || query.ranks > kMostRanks) {
    return invalid(fmt::format("ranks is {}; it must be from 1 to {}", query.ranks, kMostRanks));
  }
  if (query.layout.empty()) {
    if (query.ranks == 0) return invalid("say how many ranks, or a layout");
    question->layout = Layout::one_host(query.ranks);
  } else {
    Result<Layout> layout = Layout::parse(query.layout);
    if (!layout.ok()) return layout.status();
    question->layout = std::move(*layout);
  }
  const int size = question->layout.size();
  if (size > kMostRanks) {
    return invalid(
        fmt::format("layout {} has more than {} ranks", printable(query.layout, 40), kMostRanks));
  }
  if (query.ranks != 0 && size != query.ranks) {
    return invalid(fmt::format("layout {} has {} ranks, not {}", printable(query.layout, 40), size,
                               query.ranks));
  }
  if (query.rank < -1 || query.rank >= size) {
    return invalid(fmt::format("rank {} is outside the {} ranks", query.rank, size));
  }
  if (plan::has_root(question->call.operation) && (query.root < 0 || query.root >= size)) {
    return invalid(fmt::format("root {} is outside the {} ranks", query.root, size));
  }
  question->call.root = query.root;
  return {};
}

// Of the largest input that a rank gives, with one element a block.
int64_t input_bytes(const Question& question, DataType dtype) {
  const int root = question.root();
  const int blocks =
      plan::shape_of(question.call.operation, question.layout.size(), root, root).input;
  return static_cast<int64_t>(size_of(dtype)) * std::max(1, blocks);
}

Status read_data(const PlanQuery& query, Question* question) {
  const std::optional<DataType> dtype = dtype_named(query.dtype);
  if (!dtype) {
    std::vector<const char*> known;
    for (int number = 0; number < kDataTypes; ++number) {
      known.push_back(name_of(static_cast<DataType>(number)));
    }
    return invalid(fmt::format("no dtype '{}'; there are {}", printable(query.dtype, 40),
                               fmt::join(known, ", ")));
  }
  const std::optional<ReduceOp> op = reduce_op_named(query.op);
  if (!op) {
    std::vector<const char*> known;
    for (int number = 0; number < kReduceOps; ++number) {
      known.push_back(name_of(static_cast<ReduceOp>(number)));
    }
    return invalid(
        fmt::format("no op '{}'; there are {}", printable(query.op, 40), fmt::join(known, ", ")));
  }
  tuner::Call& call = question->call;
  if (plan::reduces(call.operation) && !is_reducible(*dtype, *op)) {
    return Status(StatusCode::kUnsupported, undefined_pair(*dtype, *op));
  }
  if (query.bytes < 0 || query.bytes > int64_t{1} << 46) {
    return invalid(fmt::format("bytes is {}; it must be from 0 to 2^46", query.bytes));
  }
  call.dtype = *dtype;
  call.op = *op;
  call.count = query.bytes / input_bytes(*question, *dtype);
  if (call.operation == Operation::kBarrier) call.count = 0;
  return {};
}

Status read_algorithm(const PlanQuery& query, Question* question) {
  const tuner::Call& call = question->call;
  question->choice = tuner::choose(call, question->layout, question->table);
  if (query.algorithm.empty()) return {};
  const std::optional<Algorithm> algorithm = plan::algorithm_named(query.algorithm);
  if (!algorithm || !fits(call.operation, *algorithm, question->layout)) {
    std::vector<const char*> known;
    for (const Algorithm fitting : plan::algorithms_for(call.operation)) {
      if (fits(call.operation, fitting, question->layout)) known.push_back(name_of(fitting));
    }
    return invalid(fmt::format("{} has no algorithm '{}' on layout {:.40}; it has {}",
                               query.operation, printable(query.algorithm, 40),
                               question->layout.text(), fmt::join(known, ", ")));
  }
  question->chosen = *algorithm == question->choice.algorithm;
  question->choice.algorithm = *algorithm;
  question->choice.chunk_bytes =
      tuner::choose_chunk_bytes(call, *algorithm, question->layout, question->table);
  return {};
}

// Of a file that is well formed.
Status prove(const plan::PlanFile& file) {
  return plan::prove({.operation = file.operation, .root = file.root}, file.plans);
}

// The plans of the query's file, which are proved: only such can be costed.
Status read_file(const PlanQuery& query, Question* question) {
  Result<plan::PlanFile> file = plan::plan_file_from_json(query.file);
  if (!file.ok()) return file.status();
  const int size = file->layout.size();
  if (size > kMostRanks) {
    return invalid(fmt::format("the plan file has {} ranks, more than {}", size, kMostRanks));
  }
  if (query.rank < -1 || query.rank >= size) {
    return invalid(fmt::format("rank {} is outside the {} ranks", query.rank, size));
  }
  CIUIC_RETURN_IF_ERROR(prove(*file));
  question->call.operation = file->operation;
  question->call.root = file->root;
  question->layout = std::move(file->layout);
  CIUIC_RETURN_IF_ERROR(read_data(query, question));
  question->chosen = false;
  question->algorithm = file->plans[0].algorithm;
  // As a communicator does it, for plans that the tuner knows nothing of.
  question->choice.chunk_bytes = tuner::choose_chunk_bytes(question->call, Algorithm::kDirect,
                                                           question->layout, question->table);
  question->plans = std::move(file->plans);
  return {};
}

Status read(const PlanQuery& query, Question* question) {
  if (!query.file.empty()) return read_file(query, question);
  CIUIC_RETURN_IF_ERROR(read_operation(query, question));
  CIUIC_RETURN_IF_ERROR(read_layout(query, question));
  CIUIC_RETURN_IF_ERROR(read_data(query, question));
  CIUIC_RETURN_IF_ERROR(read_algorithm(query, question));
  const Algorithm algorithm = question->choice.algorithm;
  question->algorithm = name_of(algorithm);
  for (int rank = 0; rank < question->layout.size(); ++rank) {
    question->plans.push_back(
        make(question->call.operation, algorithm, question->layout, rank, question->root()));
  }
  return {};
}

Json range_json(plan::BlockRange range, bool used) {
  if (!used) return nullptr;
  return {{"space", name_of(range.space)}, {"first", range.first}, {"count", range.count}};
}

Json step_json(const plan::Plan& of_rank, const plan::Step& step, const tuner::Load& load) {
  Json after = Json::array();
  for (const plan::Dependency& dependency : step.after) {
    after.push_back({{"step", dependency.step}, {"whole", dependency.whole}});
  }
  const bool reads = step.kind != plan::StepKind::kReceive;
  const bool writes = step.kind != plan::StepKind::kSend;
  return {{"kind", name_of(step.kind)},
          {"peers", step.peers},
          {"lane", step.lane},
          {"source", range_json(step.source, reads)},
          {"target", range_json(step.target, writes)},
          {"bytes", tuner::bytes_of(of_rank, reads ? step.source : step.target, load)},
          {"after", std::move(after)},
          {"own_place", step.own_place},
          {"received_raw", step.received_raw},
          {"final", step.final}};
}

Json rank_json(const plan::Plan& of_rank, int rank, const tuner::Load& load) {
  Json steps = Json::array();
  for (const plan::Step& step : of_rank.steps) steps.push_back(step_json(of_rank, step, load));
  const int scratch_blocks = of_rank.partitions[static_cast<int>(plan::Space::kScratch)].blocks;
  return {
      {"rank", rank},
      {"sent_bytes", tuner::sent_bytes(of_rank, load)},
      {"scratch_bytes", tuner::bytes_of(of_rank, {plan::Space::kScratch, 0, scratch_blocks}, load)},
      {"steps", std::move(steps)}};
}

Json totals_json(const std::vector<plan::Plan>& plans, const tuner::Load& load) {
  int64_t steps = 0;
  int64_t messages = 0;
  int64_t sent = 0;
  int64_t most_sent = 0;
  for (const plan::Plan& of_rank : plans) {
    steps += static_cast<int64_t>(of_rank.steps.size());
    for (const plan::Stream& stream : of_rank.streams) messages += stream.sends;
    const int64_t bytes = tuner::sent_bytes(of_rank, load);
    sent += bytes;
    most_sent = std::max(most_sent, bytes);
  }
  return {{"steps", steps},
          {"messages", messages},
          {"sent_bytes", sent},
          {"most_sent_bytes", most_sent}};
}

}  // namespace

Result<std::string> describe_plan(const PlanQuery& query) {
  Question question;
  CIUIC_RETURN_IF_ERROR(read(query, &question));
  const tuner::Call& call = question.call;
  const tuner::Load load = question.load();
  const std::vector<plan::Plan>& plans = question.plans;
  Json json = {
      {"operation", name_of(call.operation)},
      {"algorithm", question.algorithm},
      {"chosen", question.chosen},
      {"layout", question.layout.text()},
      {"hosts", question.layout.hosts()},
      {"ranks", question.layout.size()},
      {"root", plan::has_root(call.operation) ? Json(call.root) : Json(nullptr)},
      {"bytes", call.count * input_bytes(question, call.dtype)},
      {"count", call.count},
      {"dtype", name_of(call.dtype)},
      {"op", name_of(call.op)},
      {"chunk_bytes", question.choice.chunk_bytes},
      {"predicted_us", tuner::predicted_us(plans, question.layout, load, question.table)},
      {"plans", Json::array()},
  };
  for (int rank = 0; rank < question.layout.size(); ++rank) {
    if (query.rank >= 0 && query.rank != rank) continue;
    json["plans"].push_back(rank_json(plans[rank], rank, load));
  }
  json["totals"] = totals_json(plans, load);
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

Result<std::string> export_plan(const PlanQuery& query) {
  Question question;
  CIUIC_RETURN_IF_ERROR(read(query, &question));
  return plan::to_json(plan::PlanFile{.operation = question.call.operation,
                                      .layout = std::move(question.layout),
                                      .root = question.root(),
                                      .plans = std::move(question.plans)});
}

Status prove_plan(const std::string& file) {
  const Result<plan::PlanFile> read = plan::plan_file_from_json(file);
  return read.ok() ? prove(*read) : read.status();
}

}  // namespace ciuic
