// SPDX-License-Identifier: Apache-2.0
// mpi_group.cc: issue, test, end.

#include "backend/mpi/mpi_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/work_state.h"

namespace ciuic::backend {

// Kept for later calls at most.
static constexpr size_t kSpares = 16;

static Status cannot_cancel(const Status& status) {
  const bool has_stop = status.message().ends_with('.');
  return {status.code(),
          status.message() + (has_stop ? "" : ".") +
              " What is under way in MPI cannot be taken back: end this process, and do not use "
              "the memory of unfinished operations until then."};
}

std::unique_ptr<MpiOperation> MpiGroup::spare() {
  if (spares_.empty()) return std::make_unique<MpiOperation>();
  std::unique_ptr<MpiOperation> operation = std::move(spares_.back());
  spares_.pop_back();
  return operation;
}

void MpiGroup::record(const MpiOperation& operation) {
  const engine::Request& request = operation.request;
  records_[operation.sequence % kRecords] = {
      .operation = request.operation,
      .sequence = operation.sequence,
      .fingerprint = request.fingerprint,
      .dtype = request.dtype,
      .op = request.op,
      .reduces = request.reduces,
      .root = request.root,
      .count = request.whole_count > 0 ? request.whole_count : request.count};
}

void MpiGroup::trace_call(const MpiOperation& operation, bool starts_at_once) {
  const engine::Request& request = operation.request;
  const bool is_message = operation.is_message();
  options_.trace.called(
      {.operation = request.operation,
       .starts_at_once = starts_at_once,
       .reduces = request.reduces,
       .is_message = is_message,
       .dtype = request.dtype,
       .op = request.op,
       .sequence = operation.sequence,
       .fingerprint = is_message ? static_cast<uint32_t>(request.tag) : request.fingerprint,
       .root = is_message ? request.peer : request.root,
       .count = request.whole_count > 0 ? request.whole_count : request.count,
       .bytes = static_cast<uint64_t>(request.count) * size_of(request.dtype),
       .called_at = operation.called_at});
}

void MpiGroup::trace_end(const MpiOperation& operation, StatusCode code) {
  if (operation.is_message()) {
    options_.trace.message_ended(operation.sequence, code);
  } else {
    options_.trace.ended(operation.sequence, code);
  }
}

// Whether its memory is.
static bool is_ready(const MpiOperation& operation) {
  const auto& gate = operation.request.gate;
  return gate == nullptr || gate->is_open();
}

// Sends to one rank are issued in their order, whenever their memory is ready.
bool MpiGroup::may_follow(const MpiOperation& message) const {
  if (message.call.operation != Operation::kSend) return true;
  for (const std::unique_ptr<MpiOperation>& earlier : messages_) {
    if (earlier.get() == &message) break;
    if (earlier == nullptr || earlier->is_issued) continue;
    if (earlier->call.operation == Operation::kSend && earlier->call.peer == message.call.peer) {
      return false;
    }
  }
  return true;
}

void MpiGroup::start(std::unique_ptr<MpiOperation> operation) {
  operation->sequence = operation->is_message() ? next_message_++ : next_sequence_++;
  if (!operation->is_message()) record(*operation);
  if (!status_.ok() && has_ended_) {
    operation->work->finish(status_);
    operation->work->release();
    return;
  }
  next_deadline_ = std::min(next_deadline_, operation->request.deadline);
  MpiOperation* started = operation.get();
  Operations& operations = started->is_message() ? messages_ : collectives_;
  const bool may_issue = started->is_message()
                             ? may_follow(*started)
                             : collectives_.empty() || collectives_.back()->is_issued;
  trace_call(*started,
             started->is_message() || (may_issue && is_ready(*started) && started->check.done()));
  operations.push_back(std::move(operation));
  if (lost_rank_ >= 0) {
    report_lost(*started);
  } else if (step(started, may_issue)) {
    std::unique_ptr<MpiOperation> ended = std::move(operations.back());
    operations.pop_back();
    finish(std::move(ended));
  }
  settle();
}

// Without a control plane a cause ends the group, once nobody is among its operations.
void MpiGroup::settle() {
  if (!status_.ok() && !options_.on_cause) end(Status(status_));
}

// Of a receive that has ended.
int MpiGroup::note_received(MpiOperation* operation, const void* status) {
  const mpi::Library& library = *options_.communicator.library;
  const auto number_at = [status](size_t offset) {
    int number = 0;
    std::memcpy(&number, static_cast<const std::byte*>(status) + offset, sizeof number);
    return number;
  };
  const int source = number_at(library.constants.source_offset);
  operation->work->came_from(source, number_at(library.constants.tag_offset));
  int count = 0;
  const int code = library.functions.get_count(status, operation->expected.type, &count);
  if (code != mpi::kSuccess || count == operation->expected.count) return code;
  const size_t element = size_of(operation->request.dtype);
  const bool is_in_bytes = operation->expected.type == library.constants.byte;
  report({.status = {StatusCode::kMismatch,
                     fmt::format("recv on rank {} expects {} bytes ({} elements of {}) and rank {} "
                                 "sent {}; a send and its recv must have the same dtype and count",
                                 options_.communicator.rank,
                                 static_cast<size_t>(operation->request.count) * element,
                                 operation->request.count, name_of(operation->request.dtype),
                                 source, is_in_bytes ? std::to_string(count) : "fewer")},
          .about = source});
  return code;
}

// Returns MPI's code; takes away the requests that have ended.
int MpiGroup::test(MpiOperation* operation) {
  const mpi::Functions& call = options_.communicator.library->functions;
  alignas(16) std::byte status[mpi::kMostStatusBytes];
  size_t kept = 0;
  int code = mpi::kSuccess;
  for (mpi::Handle& request : operation->requests) {
    int has_ended = 0;
    if (code == mpi::kSuccess) code = call.test(&request, &has_ended, status);
    if (code == mpi::kSuccess && has_ended != 0) {
      if (operation->call.operation == Operation::kRecv) code = note_received(operation, status);
      continue;
    }
    operation->requests[kept++] = request;
  }
  operation->requests.resize(kept);
  return code;
}

// Returns whether the operation has ended well.
bool MpiGroup::step(MpiOperation* operation, bool may_issue) {
  if (!operation->requests.empty()) {
    const int code = test(operation);
    if (code != mpi::kSuccess) {
      fail(*operation, code);
      return false;
    }
    if (!operation->requests.empty()) return false;
  }
  while (!operation->is_issued && operation->requests.empty()) {
    if (!may_issue || !status_.ok() || !is_ready(*operation)) return false;
    if (!operation->check.done() || !operation->check.status().ok()) return false;
    const int code = issue(options_.communicator, operation);
    if (code != mpi::kSuccess) {
      fail(*operation, code);
      return false;
    }
  }
  return operation->is_issued && operation->requests.empty() && status_.ok();
}

bool MpiGroup::step(TimeNs now) {
  bool moved = false;
  for (Operations* operations : {&messages_, &collectives_}) {
    const bool are_messages = operations == &messages_;
    bool may_issue = true;
    size_t kept = 0;
    for (size_t i = 0; i < operations->size(); ++i) {
      MpiOperation* operation = (*operations)[i].get();
      const bool was_issued = operation->is_issued;
      if (are_messages && !was_issued) may_issue = may_follow(*operation);
      const bool ended = step(operation, may_issue);
      moved |= ended || operation->is_issued != was_issued;
      if (!are_messages && operation->is_issued != was_issued) {
        options_.trace.started(operation->sequence);
      }
      may_issue &= operation->is_issued;
      if (ended) {
        finish(std::move((*operations)[i]));
      } else {
        std::swap((*operations)[kept++], (*operations)[i]);
      }
    }
    operations->resize(kept);
  }
  if (now >= next_deadline_) check_deadlines(now);
  settle();
  return moved;
}

void MpiGroup::finish(std::unique_ptr<MpiOperation> operation) {
  conclude(options_.communicator, operation.get());
  const mpi::Functions& call = options_.communicator.library->functions;
  for (mpi::Handle& type : operation->types) (void)call.type_free(&type);
  trace_end(*operation, StatusCode::kOk);
  engine::WorkState* work = operation->work;
  operation->call = Call();
  operation->request = engine::Request();
  operation->work = nullptr;
  operation->check = Work();
  operation->is_issued = false;
  operation->pieces = 0;
  operation->types.clear();
  operation->numbers.clear();
  operation->packed_types.clear();
  operation->staging.reset();
  operation->staging_bytes = 0;
  if (spares_.size() < kSpares) spares_.push_back(std::move(operation));
  work->finish(Status());
  work->release();
}

void MpiGroup::abandon(std::unique_ptr<MpiOperation> operation, const Status& status) {
  const bool is_under_way = !operation->requests.empty();
  trace_end(*operation, status.code());
  engine::WorkState* work = std::exchange(operation->work, nullptr);
  work->finish(is_under_way ? cannot_cancel(status) : status);
  work->release();
  if (!is_under_way) return;
  abandoned_ = true;
  // MPI may read and write there as long as the process lives.
  static auto* const abandoned = new Operations;
  abandoned->push_back(std::move(operation));
}

void MpiGroup::fail(const MpiOperation& operation, int code) {
  const std::string text = mpi::error_text(options_.communicator.library->functions, code);
  const StatusCode kind =
      operation.call.operation == Operation::kRecv ? StatusCode::kMismatch : StatusCode::kSystem;
  report(
      {.status = {kind, fmt::format("{} on rank {} failed in MPI: {}", operation.request.operation,
                                    options_.communicator.rank, text)}});
}

void MpiGroup::report(const engine::Cause& cause) {
  if (!status_.ok()) return;
  status_ = cause.status;
  next_deadline_ = kNever;
  if (options_.on_cause) options_.on_cause(cause);
}

void MpiGroup::end(const Status& status) {
  if (has_ended_) return;
  has_ended_ = true;
  status_ = status;
  next_deadline_ = kNever;
  options_.trace.failed(status);
  for (Operations* operations : {&messages_, &collectives_}) {
    Operations ended = std::move(*operations);
    operations->clear();
    for (std::unique_ptr<MpiOperation>& operation : ended) {
      abandon(std::move(operation), status);
    }
  }
}

void MpiGroup::close() {
  if (status_.ok() && !is_busy()) options_.trace.closed();  // else it has failed, or does
  end({StatusCode::kAborted, "this rank closed its communicator"});
  options_.trace.closed();
}

void MpiGroup::check_deadlines(TimeNs now) {
  next_deadline_ = kNever;
  const MpiOperation* late = nullptr;
  for (Operations* operations : {&messages_, &collectives_}) {
    for (const std::unique_ptr<MpiOperation>& operation : *operations) {
      const TimeNs deadline = operation->request.deadline;
      if (deadline <= now && (late == nullptr || deadline < late->request.deadline)) {
        late = operation.get();
      }
      next_deadline_ = std::min(next_deadline_, deadline);
    }
  }
  if (late == nullptr) return;
  const engine::Request& request = late->request;
  const bool is_message = late->is_message();
  const std::string which = is_message ? fmt::format("on rank {}", options_.communicator.rank)
                                       : fmt::format("operation {} of its group, on rank {}",
                                                     late->sequence, options_.communicator.rank);
  report(
      {.status = {StatusCode::kTimeout,
                  fmt::format("{} ({}) did not end within {} ms in MPI, which does not tell whom "
                              "it waits for. timeout_ms (timeout_s in Python) allows more time.",
                              request.operation, which, request.timeout_ms)},
       .has_operation = !is_message,
       .sequence = late->sequence,
       .operation = request.operation,
       .is_late = true});
}

// MPI does not say whose part is missing: what is under way may need the one that is gone.
void MpiGroup::mark_gone(int rank, const Status& why, bool in_good_order) {
  if (in_good_order || lost_rank_ >= 0) return;
  lost_rank_ = rank;
  lost_ = why;
  if (!is_busy()) return;
  report_lost(collectives_.empty() ? *messages_.front() : *collectives_.front());
  settle();
}

void MpiGroup::report_lost(const MpiOperation& operation) {
  report({.status = {StatusCode::kPeerLost,
                     fmt::format("{}, while rank {} was in {}", lost_.message(),
                                 options_.communicator.rank, operation.request.operation)},
          .about = lost_rank_,
          .has_operation = !operation.is_message(),
          .sequence = operation.sequence,
          .operation = operation.request.operation});
}

engine::CallRecord MpiGroup::call_record(uint32_t sequence) const {
  const engine::CallRecord& record = records_[sequence % kRecords];
  return record.operation != nullptr && record.sequence == sequence ? record : engine::CallRecord();
}

engine::GroupProgress MpiGroup::progress() const {
  engine::GroupProgress progress;
  progress.next = progress.lowest = next_sequence_;
  progress.has_ended = has_ended_;
  if (!collectives_.empty()) {
    progress.lowest = collectives_.front()->sequence;
    progress.waits_since = collectives_.front()->called_at;
  }
  if (!messages_.empty()) progress.message_since = messages_.front()->called_at;
  return progress;
}

bool MpiGroup::needs(uint32_t sequence) const {
  return std::any_of(collectives_.begin(), collectives_.end(),
                     [sequence](const auto& operation) { return operation->sequence == sequence; });
}

size_t MpiGroup::staging_bytes() const {
  size_t bytes = 0;
  for (const auto& operation : collectives_) bytes += operation->staging_bytes;
  return bytes;
}

}  // namespace ciuic::backend
