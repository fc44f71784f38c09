// SPDX-License-Identifier: Apache-2.0
// prepare.cc: one way for all operations, since plan::shape_of() says in what they differ.

#include "collective/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/hash.h"
#include "collective/check.h"
#include "plan/registry.h"

namespace ciuic::collective {

const char* name_of(const Call& call) {
  if (call.operation == Operation::kSend) return "send";
  if (call.operation == Operation::kRecv) return "recv";
  const char* uneven = call.uneven ? plan::uneven_name_of(call.operation) : nullptr;
  return uneven != nullptr ? uneven : plan::name_of(call.operation);
}

static Status invalid(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}

namespace {

// One call on its way to a request.
class Preparation {
 public:
  Preparation(Chooser& chooser, const Call& call)
      : chooser_(chooser),
        call_(call),
        name_(name_of(call)),
        size_(chooser.size()),
        rank_(chooser.rank()),
        shape_(plan::shape_of(call.operation, size_, rank_, call.root)) {}

  Result<engine::Request> run();

 private:
  Status check_even();
  Status check_uneven();
  Status check_size(const char* which, const ConstBuffer& buffer, int blocks) const;
  Status check_place() const;
  int64_t unit() const;
  void make_counts(bool cuts_input, bool cuts_output);
  int64_t counted() const;
  uint32_t hash_of_counts() const;

  // Buffers that are the root's alone are not looked at elsewhere.
  bool has_input() const { return shape_.input > 0 || call_.operation == Operation::kBroadcast; }
  bool has_output() const { return shape_.output > 0; }
  DataType dtype() const { return has_input() ? call_.input.dtype : call_.output.dtype; }

  Chooser& chooser_;
  const Call& call_;
  const char* name_;
  const int size_;
  const int rank_;
  const plan::Shape shape_;
  int64_t count_ = 0;                     // the plan's unit
  std::shared_ptr<plan::Counts> counts_;  // uneven
};

int64_t Preparation::unit() const {
  switch (call_.operation) {
    case Operation::kBroadcast:
    case Operation::kReduceScatter:
    case Operation::kScatter: return call_.output.count;
    case Operation::kAllToAll: return call_.input.count / size_;
    default: return call_.input.count;
  }
}

Status Preparation::check_size(const char* which, const ConstBuffer& buffer, int blocks) const {
  int64_t needed = 0;
  if (!__builtin_mul_overflow(count_, int64_t{blocks}, &needed) && buffer.count == needed) {
    return {};
  }
  if (blocks == 1) {
    return invalid(fmt::format("{}: input has {} elements and output {}; they must be alike", name_,
                               call_.input.count, call_.output.count));
  }
  return invalid(fmt::format("{}: {} has {} elements; {} ranks of {} need {}", name_, which,
                             buffer.count, blocks, count_, needed));
}

Status Preparation::check_even() {
  if (call_.operation == Operation::kAllToAll && call_.input.count % size_ != 0) {
    return invalid(
        fmt::format("all_to_all: input has {} elements, which {} ranks cannot share "
                    "evenly; all_to_all_v can",
                    call_.input.count, size_));
  }
  count_ = unit();
  if (shape_.input > 0) {
    CIUIC_RETURN_IF_ERROR(check_size("input", call_.input, shape_.input));
  }
  return has_output() ? check_size("output", call_.output, shape_.output) : Status();
}

// Where a side has a block for each rank, its counts say how they are cut; the other side, of one
// block, has this rank's.
Status Preparation::check_uneven() {
  if (plan::uneven_name_of(call_.operation) == nullptr) {
    return {StatusCode::kUnsupported, fmt::format("{} has no uneven form", name_)};
  }
  const bool alone = size_ == 1;  // one block may be a rank's own, or all there are
  const bool cuts_input = shape_.input > 1 || (alone && !call_.input_counts.empty());
  const bool cuts_output = shape_.output > 1 || (alone && !call_.output_counts.empty());
  if (cuts_input) {
    CIUIC_RETURN_IF_ERROR(check_counts(name_, "input", call_.input_counts, size_, call_.input));
  }
  if (cuts_output) {
    CIUIC_RETURN_IF_ERROR(check_counts(name_, "output", call_.output_counts, size_, call_.output));
  }
  const auto own = [&](const std::vector<int64_t>& counts) { return counts[rank_]; };
  if (cuts_input && !cuts_output && has_output() && call_.output.count != own(call_.input_counts)) {
    return invalid(fmt::format("{}: output has {} elements; input_counts says {} for this rank",
                               name_, call_.output.count, own(call_.input_counts)));
  }
  if (cuts_output && !cuts_input && has_input() && call_.input.count != own(call_.output_counts)) {
    return invalid(fmt::format("{}: input has {} elements; output_counts says {} for this rank",
                               name_, call_.input.count, own(call_.output_counts)));
  }
  make_counts(cuts_input, cuts_output);
  return {};
}

static std::vector<int64_t> sums_of(const std::vector<int64_t>& counts) {
  std::vector<int64_t> sums(counts.size() + 1, 0);
  for (size_t rank = 0; rank < counts.size(); ++rank) sums[rank + 1] = sums[rank] + counts[rank];
  return sums;
}

void Preparation::make_counts(bool cuts_input, bool cuts_output) {
  counts_ = std::make_shared<plan::Counts>();
  if (cuts_input) counts_->input = sums_of(call_.input_counts);
  if (cuts_output) counts_->output = sums_of(call_.output_counts);
  if (cuts_input || cuts_output) return;
  // Only the root knows all; this rank knows its own.
  std::vector<int64_t> own(static_cast<size_t>(size_), 0);
  own[static_cast<size_t>(rank_)] = has_input() ? call_.input.count : call_.output.count;
  counts_->input = sums_of(own);
}

// In place, the input lies in the output, or the output in the input, at this rank's blocks.
Status Preparation::check_place() const {
  if (!has_input() || !has_output()) return {};
  const int64_t blocks = shape_.input_offset;
  int64_t elements = blocks * count_;
  if (counts_ != nullptr) {
    elements = blocks >= 0 ? (counts_->output.empty() ? 0 : counts_->output[blocks])
                           : -counts_->input[-blocks];
  }
  return check_pair(name_, call_.input, call_.output,
                    elements * static_cast<int64_t>(size_of(dtype())),
                    plan::allows_in_place(call_.operation));
}

// What all ranks know alike of an uneven call: where each knows all counts, their sum, else 0.
int64_t Preparation::counted() const {
  if (call_.operation == Operation::kAllGather) return call_.output.count;
  if (call_.operation == Operation::kReduceScatter) return call_.input.count;
  return 0;
}

// And the counts themselves.
uint32_t Preparation::hash_of_counts() const {
  const bool all_know =
      call_.operation == Operation::kAllGather || call_.operation == Operation::kReduceScatter;
  if (!all_know) return 0;
  return static_cast<uint32_t>(
      fnv1a_64(counts_->input.empty() ? counts_->output : counts_->input) >> 16);
}

Result<engine::Request> Preparation::run() {
  if (plan::has_root(call_.operation)) {
    CIUIC_RETURN_IF_ERROR(check_rank(name_, "root", call_.root, size_));
  }
  const bool is_broadcast = call_.operation == Operation::kBroadcast;
  if (has_input() && !is_broadcast) {
    CIUIC_RETURN_IF_ERROR(check_buffer(name_, "input", call_.input));
  }
  if (has_output()) {
    CIUIC_RETURN_IF_ERROR(check_buffer(name_, is_broadcast ? "buffer" : "output", call_.output));
  }
  const bool reduces = plan::reduces(call_.operation);
  if (reduces) CIUIC_RETURN_IF_ERROR(check_op(name_, dtype(), call_.op));
  CIUIC_RETURN_IF_ERROR(call_.uneven ? check_uneven() : check_even());
  CIUIC_RETURN_IF_ERROR(check_place());
  const tuner::Call asked{.operation = call_.operation,
                          .dtype = dtype(),
                          .op = call_.op,
                          .count = call_.uneven ? counted() : count_,
                          .root = call_.root,
                          .uneven = call_.uneven};
  Chosen chosen;
  if (call_.algorithm.empty()) [[likely]] {
    chosen = chooser_.choose(asked);
  } else {
    Result<Chosen> named = chooser_.choose(asked, call_.algorithm);
    if (!named.ok()) return named.status();
    chosen = std::move(*named);
  }
  engine::Request request;
  request.operation = name_;
  request.plan = std::move(chosen.plan);
  request.input = static_cast<const std::byte*>(call_.input.data);
  request.output = static_cast<std::byte*>(call_.output.data);
  request.count = count_;
  request.dtype = asked.dtype;
  request.op = call_.op;
  request.reduces = reduces;
  request.root = plan::has_root(call_.operation) ? call_.root : -1;
  request.chunk_bytes = chosen.chunk_bytes;
  request.fingerprint = chosen.fingerprint;
  if (counts_ != nullptr) {
    request.count = request.whole_count =
        std::max(has_input() ? call_.input.count : 0, has_output() ? call_.output.count : 0);
    request.fingerprint ^= hash_of_counts();
    if (request.fingerprint == 0) request.fingerprint = 1;
    request.counts = std::move(counts_);
  }
  return request;
}

Result<engine::Request> prepare_message(Chooser& chooser, const Call& call) {
  const bool sends = call.operation == Operation::kSend;
  const char* name = name_of(call);
  const ConstBuffer buffer = sends ? call.input : call.output;
  CIUIC_RETURN_IF_ERROR(check_buffer(name, sends ? "input" : "output", buffer));
  if (!call.algorithm.empty()) return invalid(fmt::format("{}: it has no algorithm", name));
  if (sends || call.peer != kAnySource) {
    CIUIC_RETURN_IF_ERROR(
        check_rank(name, sends ? "destination" : "source", call.peer, chooser.size()));
  }
  if (call.tag < (sends ? 0 : kAnyTag)) {
    return invalid(
        fmt::format("{}: tag {} is negative; tags are 0 to {}", name, call.tag, kMaxTag));
  }
  engine::Request request;
  request.operation = name;
  request.kind = sends ? engine::RequestKind::kSend : engine::RequestKind::kReceive;
  request.peer = call.peer;
  request.tag = call.tag;
  request.input = static_cast<const std::byte*>(call.input.data);
  request.output = static_cast<std::byte*>(call.output.data);
  request.count = request.whole_count = buffer.count;
  request.dtype = buffer.dtype;
  return request;
}

}  // namespace

Result<engine::Request> prepare(Chooser& chooser, const Call& call) {
  if (call.operation >= Operation::kSend) return prepare_message(chooser, call);
  return Preparation(chooser, call).run();
}

}  // namespace ciuic::collective
