// SPDX-License-Identifier: Apache-2.0
// caller.cc: binds calls to memory, submits them, and looks closely at how they end.

#include "sim/caller.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace ciuic::sim {
namespace {

constexpr size_t kGuard = 64;
constexpr std::byte kGuardByte{0x7e};

size_t space_bytes(const plan::Plan& plan, plan::Space space, const Call& call) {
  const plan::Partition& partition = plan.partitions[static_cast<int>(space)];
  return static_cast<size_t>(partition.begin(partition.blocks, call.count)) *
         size_of(call.values.dtype);
}

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

Caller::Caller(Judge* judge, const Scenario* scenario, int group, int rank, engine::Engine* engine,
               engine::Group* handle, GroupEnd* end)
    : judge_(judge),
      scenario_(scenario),
      group_(group),
      rank_(rank),
      pace_(scenario->paces[scenario->groups[group].processes[rank]]),
      random_(scenario->seed ^ mix(static_cast<uint64_t>(group) * 4096 + rank)),
      engine_(engine),
      handle_(handle),
      end_(end),
      next_call_at_(pace_.first_call),
      chooser_(scenario->groups[group].layout, rank, {}),
      hashes_(calls().size(), 0) {}

Caller::~Caller() {
  for (Pending& pending : pending_) pending.work->release();
}

void Caller::fail(size_t call, const std::string& what) const {
  judge_->fail(fmt::format("group {}, rank {}, call {} ({}): {}", group_, rank_, call,
                           calls()[call].text(), what));
}

std::shared_ptr<const plan::Plan> Caller::plan_for(const Call& call) {
  if (call.random_plan != nullptr) return call.random_plan->plans[rank_];
  for (const Planned& planned : plans_) {
    if (planned.operation == call.operation && planned.algorithm == call.algorithm &&
        planned.root == call.root) {
      return planned.plan;
    }
  }
  plans_.push_back(
      {call.operation, call.algorithm, call.root,
       std::make_shared<const plan::Plan>(plan::make(
           call.operation, call.algorithm, scenario_->groups[group_].layout, rank_, call.root))});
  return plans_.back().plan;
}

// What one operation may need at once: scratch, and early or windowed chunks of all its streams.
static size_t staging_of(const Call& call, const plan::Plan& plan, size_t chunk_bytes, int window) {
  const auto rounded = [](size_t bytes) { return 2 * std::max<size_t>(bytes, 64); };
  size_t bytes = rounded(space_bytes(plan, plan::Space::kScratch, call));
  for (const plan::Stream& stream : plan.streams) {
    if (stream.receives > 0) bytes += (window + 1) * rounded(chunk_bytes);
  }
  return bytes;
}

// `input_block` is which block of the output the input is in place.
void Caller::set_up(const Call& call, size_t input_bytes, size_t output_bytes, int input_block,
                    Pending* pending) {
  const Values& values = call.values;
  const bool is_root = rank_ == call.root;
  const bool is_broadcast = call.operation == plan::Operation::kBroadcast && !call.random_plan;
  const bool is_reduce = call.operation == plan::Operation::kReduce && !call.random_plan;
  const bool has_output = !is_reduce || is_root;
  const bool in_place = (call.in_place || is_broadcast) && has_output;
  if (has_output) pending->output = GuardedBuffer(output_bytes, random_.next());
  if (!in_place) pending->input = GuardedBuffer(input_bytes, random_.next());
  pending->input_at =
      in_place ? pending->output.data() + input_block * input_bytes : pending->input.data();
  if (!is_broadcast || is_root) {
    values.fill(rank_, static_cast<int64_t>(input_bytes / size_of(values.dtype)),
                pending->input_at);
  }
  if (!in_place) {
    pending->input_copy.assign(pending->input_at, pending->input_at + input_bytes);
  }
}

engine::Request Caller::request_for(const Call& call, Pending* pending) {
  const std::shared_ptr<const plan::Plan> plan = plan_for(call);
  const bool is_barrier = !call.random_plan && call.operation == plan::Operation::kBarrier;
  if (is_barrier) {
    set_up(call, 0, 0, 0, pending);
  } else {
    set_up(call, space_bytes(*plan, plan::Space::kInput, call),
           space_bytes(*plan, plan::Space::kOutput, call), plan->input_offset, pending);
  }
  engine::Request request;
  request.operation = call.random_plan ? "random_plan" : plan::name_of(call.operation);
  request.plan = plan;
  request.input = pending->input_at;
  request.output = pending->output.size() > 0 ? pending->output.data() : nullptr;
  request.count = call.count;
  request.dtype = call.values.dtype;
  request.op = call.values.op;
  request.chunk_bytes = call.chunk_bytes;
  request.fingerprint = static_cast<uint32_t>(call.values.seed) | 1;
  return request;
}

// As the library's own operations make it.
engine::Request Caller::chosen_request_for(const Call& call, Pending* pending) {
  const bool is_gather = call.operation == plan::Operation::kAllGather;
  const bool is_barrier = call.operation == plan::Operation::kBarrier;
  const int64_t input_count = is_barrier ? 0 : call.count;
  const int64_t output_count = input_count * (is_gather ? call.values.ranks : 1);
  const size_t element = size_of(call.values.dtype);
  set_up(call, input_count * element, output_count * element, is_gather ? rank_ : 0, pending);
  collective::Arguments arguments;
  arguments.operation = call.operation;
  arguments.op = call.values.op;
  arguments.root = call.root;
  arguments.input = {pending->input_at, input_count, call.values.dtype, {}};
  if (pending->output.size() > 0) {
    arguments.output = {pending->output.data(), output_count, call.values.dtype, {}};
  } else {
    arguments.output.dtype = call.values.dtype;
  }
  Result<engine::Request> request = collective::prepare(chooser_, arguments);
  if (request.ok()) return std::move(*request);
  fail(pending->call, "was refused: " + request.status().message());
  return request_for(call, pending);
}

void Caller::submit(TimeNs now) {
  const size_t number = next_call_++;
  const Call& call = calls()[number];
  Pending pending;
  pending.call = number;
  engine::Request request =
      call.is_chosen ? chosen_request_for(call, &pending) : request_for(call, &pending);
  staging_.push_back(
      staging_of(call, *request.plan, request.chunk_bytes, scenario_->groups[group_].window));
  request.timeout_ms = scenario_->timeout_ms;
  request.deadline = deadline_after(now, scenario_->timeout_ms);
  pending.deadline = request.deadline;
  pending.work = engine_->submit(handle_, std::move(request), now);
  pending_.push_back(std::move(pending));
}

void Caller::act(TimeNs now, TimeNs* again) {
  *again = kNever;
  if (is_closed()) return;
  for (size_t i = 0; i < pending_.size();) {
    if (!pending_[i].work->done()) {
      if (now > pending_[i].deadline + pace_.step_max + 1'000'000) {
        fail(pending_[i].call, "has not ended, long after its deadline");
        pending_[i].deadline = kNever;
      }
      ++i;
      continue;
    }
    judge_end(now, &pending_[i]);
    pending_[i].work->release();
    pending_.erase(pending_.begin() + static_cast<int64_t>(i));
  }
  while (next_call_ < calls().size() && now >= next_call_at_ &&
         static_cast<int>(pending_.size()) < pace_.in_flight) {
    submit(now);
    *again = now;  // to step, as a driver does after a call
    next_call_at_ = now + (pace_.gap_max > 0 ? random_.between(0, pace_.gap_max) : 0);
    if (!pending_.back().work->done()) continue;
    if (!engine_->group_status(handle_).ok())
      end_->first_end_at = std::min(end_->first_end_at, now);
    return;
  }
  if (next_call_ < calls().size() && static_cast<int>(pending_.size()) < pace_.in_flight) {
    *again = std::min(*again, next_call_at_);
  }
  if (is_finished() && pace_.closes_early) close(now);
}

void Caller::close(TimeNs now) {
  if (is_closed()) return;
  (void)engine_->remove_group(handle_);
  handle_ = nullptr;
  end_->first_end_at = std::min(end_->first_end_at, now);
}

void Caller::judge_end(TimeNs now, Pending* pending) {
  const Status& status = pending->work->status();
  std::string wrong;
  if (!pending->output.is_intact() || !pending->input.is_intact()) wrong = "wrote out of bounds";
  if (!pending->input_copy.empty() &&
      std::memcmp(pending->input_copy.data(), pending->input_at, pending->input_copy.size()) != 0) {
    wrong = "wrote to its input";
  }
  if (status.ok()) {
    ++ok_;
    if (wrong.empty()) wrong = check_result(*pending);
    if (error_at_ < now) wrong = "ended well after its group's error";
  } else {
    ++ended_;
    judge_error(now, *pending);
    error_ = status;
    error_at_ = std::min(error_at_, now);
  }
  if (!wrong.empty()) fail(pending->call, wrong);
  const Call& call = calls()[pending->call];
  if (status.ok() && call.random_plan == nullptr) {
    hashes_[pending->call] = hash_of(pending->output.data(), pending->output.size());
  }
  // From here on the memory is the caller's again.
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

// Errors come from a deadline that has passed or a connection that was lost, here or, as the
// message then says, on another rank.
void Caller::judge_error(TimeNs now, const Pending& pending) {
  const Status& status = pending.work->status();
  const bool from_peer = !end_->errors.insert(status.message()).second;
  const auto complain = [&](const char* what) {
    fail(pending.call, fmt::format("{}: {}: {}", what, name_of(status.code()), status.message()));
  };
  if (status.message().find("rank ") == std::string::npos) complain("its error names no rank");
  if (!error_.ok()) {
    if (status.code() != error_.code()) complain("another error than its group's first");
    return;
  }
  const TimeNs other_end_at = end_->first_end_at;
  end_->first_end_at = std::min(end_->first_end_at, now);
  if (scenario_->fault == Fault::kNone) return complain("an error, and no fault");
  if (from_peer) {
    if (other_end_at > now) complain("an error of a rank that has none");
    return;
  }
  if (status.code() == StatusCode::kTimeout) {
    TimeNs deadline = kNever;
    for (const Pending& other : pending_) deadline = std::min(deadline, other.deadline);
    if (now < deadline) complain("timed out too early");
    if (now > deadline + pace_.step_max + 1'000'000) complain("timed out too late");
  } else if (status.code() == StatusCode::kPeerLost) {
    if (now < std::min(judge_->loss_at(), other_end_at)) complain("nobody was lost");
  } else {
    complain("an error of the wrong kind");
  }
}

std::string Caller::check_result(const Pending& pending) const {
  const Call& call = calls()[pending.call];
  const Values& values = call.values;
  const std::byte* result = pending.output.data();
  if (call.random_plan != nullptr) return check_random_plan(pending);
  switch (call.operation) {
    case plan::Operation::kAllReduce: return values.check_reduced(result, call.count);
    case plan::Operation::kReduce:
      return rank_ == call.root ? values.check_reduced(result, call.count) : "";
    case plan::Operation::kBroadcast: return values.check_copied(call.root, result, call.count);
    case plan::Operation::kAllGather:
      for (int rank = 0; rank < values.ranks; ++rank) {
        const std::string wrong = values.check_copied(
            rank, result + rank * call.count * size_of(values.dtype), call.count);
        if (!wrong.empty()) return wrong;
      }
      return "";
    case plan::Operation::kBarrier: return "";
  }
  return "no such operation";
}

std::string Caller::check_random_plan(const Pending& pending) const {
  const Call& call = calls()[pending.call];
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
        std::memcmp(outputs[rank_].data() + begin, pending.output.data() + begin, end - begin) !=
            0) {
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
  const size_t peers = scenario_->groups[group_].processes.size() - 1;
  return bound + peers * engine::kEagerOperations * eager;
}

std::string Caller::pending_text() const {
  if (is_finished()) return "";
  return fmt::format("group {}, rank {}: {} of {} called, {} of them not ended", group_, rank_,
                     next_call_, calls().size(), pending_.size());
}

}  // namespace ciuic::sim
