// SPDX-License-Identifier: Apache-2.0
// caller.cc: binds calls to memory, submits them, and looks closely at how they end.

#include "sim/caller.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "plan/uneven.h"

namespace ciuic::sim {
namespace {

constexpr size_t kGuard = 64;
constexpr std::byte kGuardByte{0x7e};

}  // namespace

GuardedBuffer::GuardedBuffer(size_t bytes, uint64_t seed)
    // Not aligned, but whole elements off, as slices of tensors are.
    : bytes_(bytes + 2 * kGuard + 8, kGuardByte), begin_(kGuard + 8 * (seed % 2)), size_(bytes) {
  spoil(data(), size_, seed);
}

bool GuardedBuffer::is_intact() const {
  const auto is_guard = [](std::byte byte) { return byte == kGuardByte; };
  return std::all_of(bytes_.begin(), bytes_.begin() + begin_, is_guard) &&
         std::all_of(bytes_.begin() + begin_ + size_, bytes_.end(), is_guard);
}

Caller::Caller(CallerOptions options)
    : judge_(options.judge),
      scenario_(options.scenario),
      group_(options.group),
      number_(options.number),
      rank_(options.rank),
      pace_(scenario_->paces[group_->processes[rank_]]),
      is_target_(options.is_target),
      random_(scenario_->seed ^ mix(static_cast<uint64_t>(number_) * 4096 + rank_)),
      member_(options.member),
      record_(options.record),
      next_call_at_(pace_.first_call),
      chooser_(group_->layout, rank_, {}) {
  record_->calls.resize(calls().size());
}

Caller::~Caller() {
  for (Pending& pending : pending_) pending.work->release();
}

void Caller::call_otherwise(size_t call, Call other, bool swaps) {
  lie_at_ = call;
  lie_ = std::move(other);
  lie_swaps_ = swaps;
}

void Caller::hold(size_t call, TimeNs until) {
  held_from_ = call;
  held_until_ = until;
}

bool Caller::is_lie(size_t number) const {
  return number == lie_at_ || (lie_swaps_ && number == lie_at_ + 1);
}

const Call& Caller::call_of(size_t number) const {
  if (number == lie_at_) return lie_;
  return calls()[is_lie(number) ? lie_at_ : number];
}

TimeNs Caller::earliest_deadline() const {
  TimeNs earliest = kNever;
  for (const Pending& pending : pending_) {
    earliest = std::min(earliest, record_->calls[pending.call].deadline);
  }
  return earliest;
}

void Caller::fail(size_t call, const std::string& what) const {
  judge_->fail(fmt::format("group {}, rank {}, call {} ({}): {}", number_, rank_, call,
                           call_of(call).text(), what));
}

std::shared_ptr<const plan::Plan> Caller::plan_for(const Call& call) {
  if (call.random_plan != nullptr) return call.random_plan->plans[rank_];
  if (!call.plans.empty()) return call.plans[rank_];
  for (const Planned& planned : plans_) {
    if (planned.operation == call.operation && planned.algorithm == call.algorithm &&
        planned.root == call.root) {
      return planned.plan;
    }
  }
  plans_.push_back({call.operation, call.algorithm, call.root,
                    std::make_shared<const plan::Plan>(plan::make(
                        call.operation, call.algorithm, group_->layout, rank_, call.root))});
  return plans_.back().plan;
}

// What one operation may need at once: scratch, and early or windowed chunks of all its streams.
static size_t staging_of(const engine::Request& request, int window) {
  const auto rounded = [](size_t bytes) { return 2 * std::max<size_t>(bytes, 64); };
  const int64_t scratch =
      request.plan->space_elements(plan::Space::kScratch, request.count, request.counts.get());
  size_t bytes = rounded(static_cast<size_t>(scratch) * size_of(request.dtype));
  for (const plan::Stream& stream : request.plan->streams) {
    if (stream.receives > 0) bytes += (window + 1) * rounded(request.chunk_bytes);
  }
  return bytes;
}

plan::Shape Caller::shape_of(const Call& call) const {
  if (call.random_plan != nullptr) return {};
  return plan::shape_of(call.operation, call.values.ranks, rank_, call.root);
}

// Where a block of a rank's input or output lies, in elements.
plan::Elements Caller::block_of(const Call& call, int rank, Side side, int block) const {
  if (call.random_plan != nullptr) {
    const plan::Partition& partition = call.random_plan->plans[rank]->partitions[0];
    return {0, partition.begin(partition.blocks, call.count)};
  }
  if (call.pattern < 0) return {block * (call.count + call.gap), call.count};
  const plan::Counts counts =
      plan::uneven_counts(call.operation, call.values.ranks, rank, call.root, call.pattern);
  const auto& own = side == Side::kInput ? counts.input : counts.output;
  const auto& other = side == Side::kInput ? counts.output : counts.input;
  const std::vector<int64_t>& sums = own.empty() ? other : own;
  const plan::Shape shape = plan::shape_of(call.operation, call.values.ranks, rank, call.root);
  const bool is_whole = (side == Side::kInput ? shape.input : shape.output) == 1;
  const int owner = is_whole ? rank : block;
  return {is_whole ? 0 : sums[owner] * call.count, (sums[owner + 1] - sums[owner]) * call.count};
}

// Of each block of this rank's.
std::vector<int64_t> Caller::counts_of(const Call& call, Side side) const {
  const plan::Shape shape = shape_of(call);
  std::vector<int64_t> counts;
  for (int block = 0; block < (side == Side::kInput ? shape.input : shape.output); ++block) {
    counts.push_back(block_of(call, rank_, side, block).size);
  }
  return counts;
}

int64_t Caller::elements_of(const Call& call, Side side) const {
  const plan::Shape shape = shape_of(call);
  const int blocks = side == Side::kInput ? shape.input : shape.output;
  if (blocks == 0) return 0;
  const plan::Elements last = block_of(call, rank_, side, blocks - 1);
  return last.begin + last.size;
}

void Caller::set_up(const Call& call, Pending* pending) {
  const Values& values = call.values;
  const auto element = static_cast<int64_t>(size_of(values.dtype));
  const plan::Shape shape = shape_of(call);
  const bool is_broadcast = call.operation == plan::Operation::kBroadcast && !call.random_plan;
  const bool in_place = shape.input > 0 && shape.output > 0 && (call.in_place || is_broadcast) &&
                        (call.random_plan || plan::allows_in_place(call.operation));
  const bool is_within_input = in_place && shape.input > shape.output;
  const int64_t input_count = elements_of(call, Side::kInput);
  pending->output_bytes = static_cast<size_t>(elements_of(call, Side::kOutput) * element);
  if (shape.output > 0 && !is_within_input) {
    pending->output = GuardedBuffer(pending->output_bytes, random_.next());
    pending->output_at = pending->output.data();
  }
  if (shape.input > 0 && (!in_place || is_within_input)) {
    pending->input = GuardedBuffer(static_cast<size_t>(input_count * element), random_.next());
    pending->input_at = pending->input.data();
  }
  const auto begin_of = [&](Side side, int block) {
    return block_of(call, rank_, side, block).begin * element;
  };
  if (is_within_input) {
    pending->output_at = pending->input_at + begin_of(Side::kInput, -shape.input_offset);
  } else if (in_place) {
    pending->input_at = pending->output_at + begin_of(Side::kOutput, shape.input_offset);
  }
  if (is_broadcast) pending->input_at = pending->output_at;  // one buffer on all ranks
  if (shape.input > 0) values.fill(rank_, input_count, pending->input_at);
  if (shape.input > 0 && (!in_place || is_within_input)) {
    pending->input_copy.assign(pending->input_at, pending->input_at + input_count * element);
  }
  if (call.gap > 0 && shape.output > 1) {
    pending->output_copy.assign(pending->output_at, pending->output_at + pending->output_bytes);
  }
}

// What ranks must agree on.
static uint64_t kind_of(const Call& call) {
  if (call.random_plan != nullptr) return 0;
  return mix(static_cast<uint64_t>(call.count)) ^ static_cast<uint64_t>(call.operation) << 40 ^
         static_cast<uint64_t>(call.values.dtype) << 32 ^
         static_cast<uint64_t>(call.values.op) << 24 ^
         static_cast<uint64_t>(call.pattern + 1) << 20 ^ static_cast<uint64_t>(call.root);
}

engine::Request Caller::request_for(const Call& call, Pending* pending) {
  set_up(call, pending);
  engine::Request request;
  request.operation = call.random_plan   ? "random_plan"
                      : call.pattern < 0 ? plan::name_of(call.operation)
                                         : plan::uneven_name_of(call.operation);
  request.plan = plan_for(call);
  request.stride = call.gap > 0 ? call.count + call.gap : 0;
  if (call.pattern >= 0) {
    auto counts = std::make_shared<plan::Counts>(
        plan::uneven_counts(call.operation, call.values.ranks, rank_, call.root, call.pattern));
    for (int64_t& sum : counts->input) sum *= call.count;
    for (int64_t& sum : counts->output) sum *= call.count;
    request.counts = std::move(counts);
  }
  request.input = pending->input_at;
  request.output = pending->output_at;
  request.count = call.count;
  request.dtype = call.values.dtype;
  request.op = call.values.op;
  request.chunk_bytes = call.chunk_bytes;
  if (call.random_plan == nullptr) {
    request.reduces = plan::reduces(call.operation);
    request.root = plan::has_root(call.operation) ? call.root : -1;
  }
  // Every call its own, so that a message of another one shows.
  request.fingerprint = static_cast<uint32_t>(mix(call.values.seed ^ kind_of(call))) | 1;
  return request;
}

// As the library's own operations make it.
engine::Request Caller::chosen_request_for(const Call& call, Pending* pending) {
  set_up(call, pending);
  const bool is_broadcast = call.operation == plan::Operation::kBroadcast;
  const int64_t input_count = is_broadcast ? call.count : elements_of(call, Side::kInput);
  const int64_t output_count = elements_of(call, Side::kOutput);
  ciuic::Call made{.operation = call.operation,
                   .input = {pending->input_at, input_count, call.values.dtype, {}},
                   .output = {pending->output_at, output_count, call.values.dtype, {}},
                   .op = call.values.op,
                   .root = call.root,
                   .uneven = call.pattern >= 0};
  if (made.uneven && shape_of(call).input > 1) made.input_counts = counts_of(call, Side::kInput);
  if (made.uneven && shape_of(call).output > 1) made.output_counts = counts_of(call, Side::kOutput);
  Result<engine::Request> request = collective::prepare(chooser_, made);
  if (request.ok()) return std::move(*request);
  fail(pending->call, "was refused: " + request.status().message());
  return request_for(call, pending);
}

void Caller::submit(TimeNs now) {
  const size_t number = next_call_++;
  const Call& call = call_of(number);
  Pending pending;
  pending.call = number;
  engine::Request request =
      call.is_chosen ? chosen_request_for(call, &pending) : request_for(call, &pending);
  staging_.push_back(staging_of(request, group_->window));
  request.timeout_ms = call.timeout_ms >= 0 ? call.timeout_ms : scenario_->timeout_ms;
  request.deadline = deadline_after(now, request.timeout_ms);
  CallRecord& record = record_->calls[number];
  record.called_at = now;
  record.deadline = request.deadline;
  if (scenario_->bug == Bug::kDeadlineEarly) request.deadline -= 1'000'000;
  if (scenario_->bug == Bug::kDeadlineIgnored) request.deadline = kNever;
  if (scenario_->bug == Bug::kFingerprintAlike) request.fingerprint = 1;
  const uint32_t sequence = member_->next_sequence();
  pending.work = member_->submit(std::move(request), now);
  if (scenario_->records_calls()) record.text = member_->call_text(sequence);
  pending_.push_back(std::move(pending));
}

void Caller::act(TimeNs now, TimeNs* again) {
  *again = kNever;
  look_at_ends(now);
  if (member_->is_closed()) return;
  while (next_call_ < last_call() && now >= next_call_at_ &&
         static_cast<int>(pending_.size()) < pace_.in_flight) {
    if (next_call_ == held_from_ && now < held_until_) {
      next_call_at_ = held_until_;
      break;
    }
    submit(now);
    *again = now;  // to step, as a driver does after a call
    next_call_at_ = now + (pace_.gap_max > 0 ? random_.between(0, pace_.gap_max) : 0);
    if (pending_.back().work->done()) return;
  }
  if (next_call_ < last_call() && static_cast<int>(pending_.size()) < pace_.in_flight) {
    *again = std::min(*again, next_call_at_);
  }
  if (is_finished() && pace_.closes_early && held_from_ == SIZE_MAX) close(now);
}

void Caller::look_at_ends(TimeNs now) {
  if (scenario_->bug == Bug::kWritesLate && is_target_ && has_error_ && !ended_ago_.empty()) {
    GuardedBuffer& output = ended_ago_.back().output;
    if (output.size() > 0) output.data()[0] ^= std::byte{1};
  }
  for (size_t i = 0; i < pending_.size();) {
    if (!pending_[i].work->done()) {
      ++i;
      continue;
    }
    judge_end(now, &pending_[i]);
    pending_[i].work->release();
    pending_.erase(pending_.begin() + static_cast<int64_t>(i));
  }
}

// What a bug makes of how an operation has ended.
Status Caller::planted(const Status& status) const {
  if (!is_target_ || status.ok()) return status;
  switch (scenario_->bug) {
    case Bug::kEndsWell: return {};
    case Bug::kErrorForgotten: return has_error_ ? Status() : status;
    case Bug::kOtherError:
      return has_error_ ? Status(StatusCode::kSystem, "rank 0 did something") : status;
    default: return status;
  }
}

void Caller::judge_end(TimeNs now, Pending* pending) {
  CallRecord& record = record_->calls[pending->call];
  record.ended_at = now;
  record.status = planted(pending->work->status());
  std::string wrong;
  if (!pending->output.is_intact() || !pending->input.is_intact()) wrong = "wrote out of bounds";
  if (has_written_input(*pending)) wrong = "wrote to its input";
  if (has_written_between(*pending)) wrong = "wrote between blocks of its output";
  if (record.status.ok()) {
    ++ok_;
    const Call& call = call_of(pending->call);
    if (wrong.empty() && !is_lie(pending->call)) wrong = check_result(*pending);
    const bool is_alike = call.operation == plan::Operation::kAllReduce ||
                          call.operation == plan::Operation::kBroadcast ||
                          call.operation == plan::Operation::kAllGather;
    if (call.random_plan == nullptr && is_alike && call.gap == 0 && !is_lie(pending->call)) {
      record.hash = hash_of(pending->output_at, pending->output_bytes);
    }
  } else {
    ++ended_;
    has_error_ = true;
  }
  if (!wrong.empty()) fail(pending->call, wrong);
  keep(pending);
}

// From here on the memory is the caller's again.
void Caller::keep(Pending* pending) {
  Ended ended{pending->call, std::move(pending->input), std::move(pending->output), 0};
  spoil(ended.input.data(), ended.input.size(), random_.next());
  spoil(ended.output.data(), ended.output.size(), random_.next());
  ended.hash = hash_of(ended.output.data(), ended.output.size());
  ended_ago_.push_back(std::move(ended));
  // The mutant that reads sent buffers too late shall find garbage, not freed memory.
  const size_t most = scenario_->network.mutant == Mutant::kCompletionEarly ? SIZE_MAX : 16;
  if (ended_ago_.size() > most) {
    check_untouched(ended_ago_.front());
    ended_ago_.pop_front();
  }
}

bool Caller::has_written_input(const Pending& pending) const {
  const std::byte* const begin = pending.input_at;
  const std::byte* const end = begin + pending.input_copy.size();
  // Where the output lies within, what comes before it and what comes after it.
  const bool is_within = begin <= pending.output_at && pending.output_at < end;
  const std::byte* const hole = is_within ? pending.output_at : end;
  const std::byte* const rest = is_within ? hole + pending.output_bytes : end;
  const std::byte* const copy = pending.input_copy.data();
  return !std::equal(begin, hole, copy) || !std::equal(rest, end, copy + (rest - begin));
}

bool Caller::has_written_between(const Pending& pending) const {
  if (pending.output_copy.empty()) return false;
  const Call& call = call_of(pending.call);
  const auto element = static_cast<int64_t>(size_of(call.values.dtype));
  for (int block = 0; block + 1 < shape_of(call).output; ++block) {
    const plan::Elements before = block_of(call, rank_, Side::kOutput, block);
    const int64_t begin = (before.begin + before.size) * element;
    const int64_t end = block_of(call, rank_, Side::kOutput, block + 1).begin * element;
    if (std::memcmp(pending.output_at + begin, pending.output_copy.data() + begin, end - begin) !=
        0) {
      return true;
    }
  }
  return false;
}

std::string Caller::check_result(const Pending& pending) const {
  const Call& call = call_of(pending.call);
  const Values& values = call.values;
  const std::byte* result = pending.output_at;
  if (call.random_plan != nullptr) return check_random_plan(pending);
  if (shape_of(call).output == 0) return "";
  const int64_t count = block_of(call, rank_, Side::kOutput, 0).size;
  const auto begin_at = [&](int giver) { return block_of(call, giver, Side::kInput, rank_).begin; };
  switch (call.operation) {
    case plan::Operation::kAllReduce:
    case plan::Operation::kReduce: return values.check_reduced(result, count);
    case plan::Operation::kReduceScatter:
      return values.check_reduced(result, count, begin_at(rank_));
    case plan::Operation::kBroadcast: return values.check_copied(call.root, result, count);
    case plan::Operation::kScatter:
      return values.check_copied(call.root, result, count, begin_at(call.root));
    case plan::Operation::kAllGather:
    case plan::Operation::kGather:
    case plan::Operation::kAllToAll: return check_blocks(pending);
    default: break;
  }
  return "no such operation";
}

// A block from each rank: its whole input, or in an all-to-all this rank's part of it.
std::string Caller::check_blocks(const Pending& pending) const {
  const Call& call = call_of(pending.call);
  const bool is_part = call.operation == plan::Operation::kAllToAll;
  for (int rank = 0; rank < call.values.ranks; ++rank) {
    const plan::Elements block = block_of(call, rank_, Side::kOutput, rank);
    const std::string wrong = call.values.check_copied(
        rank, pending.output_at + block.begin * static_cast<int64_t>(size_of(call.values.dtype)),
        block.size, is_part ? block_of(call, rank, Side::kInput, rank_).begin : 0);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string Caller::check_random_plan(const Pending& pending) const {
  const Call& call = call_of(pending.call);
  const RandomPlan& drawn = *call.random_plan;
  const plan::Partition& partition = drawn.plans[rank_]->partitions[1];
  std::vector<std::vector<uint8_t>> inputs(call.values.ranks);
  for (int rank = 0; rank < call.values.ranks; ++rank) {
    inputs[rank].resize(static_cast<size_t>(partition.begin(partition.blocks, call.count)));
    call.values.fill(rank, static_cast<int64_t>(inputs[rank].size()),
                     reinterpret_cast<std::byte*>(inputs[rank].data()));
  }
  const auto outputs = run_reference(drawn, call.count, inputs, call.in_place);
  for (int block = 0; block < partition.blocks; ++block) {
    const int64_t begin = partition.begin(block, call.count);
    const int64_t end = partition.begin(block + 1, call.count);
    if (drawn.defined[rank_][block] && begin < end &&
        std::memcmp(outputs[rank_].data() + begin, pending.output_at + begin, end - begin) != 0) {
      return fmt::format("block {} of the output is wrong", block);
    }
  }
  return "";
}

void Caller::check_untouched(const Ended& ended) const {
  if (hash_of(ended.output.data(), ended.output.size()) != ended.hash ||
      !ended.output.is_intact()) {
    fail(ended.call, "wrote to its output after it had ended");
  }
}

void Caller::check_untouched() const {
  for (const Ended& ended : ended_ago_) check_untouched(ended);
}

size_t Caller::staging_bound() const {
  // As many operations at once as may be active here, and what peers may send before those start:
  // one eager chunk for each of the operations that they may be ahead.
  std::vector<size_t> bytes = staging_;
  std::sort(bytes.rbegin(), bytes.rend());
  size_t bound = 0;
  for (size_t i = 0; i < bytes.size() && i < engine::kMaxActive; ++i) bound += bytes[i];
  size_t eager = 128;
  for (const Call& call : calls()) {
    const size_t chunk = call.is_chosen ? engine::kEagerBytes : call.chunk_bytes;
    eager = std::max(eager, 2 * std::min(chunk, engine::kEagerBytes));
  }
  const size_t peers = group_->processes.size() - 1;
  return bound + peers * engine::kEagerOperations * eager;
}

std::string Caller::pending_text() const {
  if (is_finished()) return "";
  return fmt::format("group {}, rank {}: {} of {} called, {} of them not ended", number_, rank_,
                     next_call_, calls().size(), pending_.size());
}

}  // namespace ciuic::sim
