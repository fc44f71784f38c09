// SPDX-License-Identifier: Apache-2.0
// messages.cc: send and recv, and barriers.

#include <algorithm>

#include "errors.h"
#include "group.h"
#include "interrupts.h"
#include "tensors.h"

namespace ciuic::torch_backend {

namespace {

constexpr int kMonitoredBarrierTag = kLastUserTag + 1;
constexpr int kReleaseTag = kLastUserTag + 2;
constexpr std::chrono::milliseconds kGrace{5'000};

void check_tag(const char* operation, int tag) {
  if (tag < 0 || tag > kLastUserTag) {
    refuse(operation,
           "tag " + std::to_string(tag) + " is not from 0 to " + std::to_string(kLastUserTag));
  }
}

}  // namespace

int TorchGroup::check_peer(const char* operation, int64_t rank) const {
  if (rank < 0 || rank >= size_) {
    refuse(operation, "invalid root or peer rank " + std::to_string(rank) + "; there are 0 to " +
                          std::to_string(size_ - 1));
  }
  return static_cast<int>(rank);
}

TorchGroup::WorkPointer TorchGroup::send(Tensors& tensors, int destination, int tag) {
  constexpr const char* kName = "send";
  const at::Tensor source = plain(single(tensors, kName));
  check_tag(kName, tag);
  Ending ending;
  ending.results.push_back(tensors[0]);
  ending.keep.push_back(source);
  return launch(Call::send(payload_of(source), check_peer(kName, destination), tag),
                {c10d::OpType::SEND, "ciuic:send", !is_coalescing_.load(), {}, tensors},
                std::move(ending));
}

TorchGroup::WorkPointer TorchGroup::receive(Tensors& tensors, int source, int tag,
                                            const char* title) {
  constexpr const char* kName = "recv";
  const at::Tensor& tensor = single(tensors, kName);
  check_tag(kName, tag);
  const at::Tensor target = plain_output(tensor);
  Ending ending;
  ending.results.push_back(tensor);
  ending.keep.push_back(target);
  ending.finish = copying_back(tensor, target);
  const c10d::OpType type = source == kAnySource ? c10d::OpType::RECVANYSOURCE : c10d::OpType::RECV;
  return launch(Call::recv(payload_of(target), source, tag),
                {type, title, !is_coalescing_.load(), {}, tensors}, std::move(ending));
}

TorchGroup::WorkPointer TorchGroup::recv(Tensors& tensors, int source, int tag) {
  return receive(tensors, check_peer("recv", source), tag, "ciuic:recv");
}

TorchGroup::WorkPointer TorchGroup::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, kAnySource, tag, "ciuic:recvAnySource");
}

// Ends when all ranks are here and, as gloo's, when this rank's earlier collectives have ended,
// also those whose Work was dropped. One that blocks waits for them before it tells the others.
TorchGroup::WorkPointer TorchGroup::barrier(const c10d::BarrierOptions& options) {
  const Manner manner{c10d::OpType::BARRIER, "ciuic:barrier", options.asyncOp, options.timeout, {}};
  EarlierWorks earlier = earlier_.unfinished();
  Ending ending;
  if (!options.asyncOp && !is_coalescing_.load()) {
    for (EarlierWork& work : earlier) {
      if (!work.wait(communicator_.get())) return new_work(manner, effective(options.timeout));
    }
  } else if (!earlier.empty()) {
    ending.finish = [earlier = std::move(earlier)]() mutable {
      for (EarlierWork& work : earlier) (void)work.wait(nullptr);
    };
  }
  return launch(Call::barrier(), manner, std::move(ending));
}

// Rank 0 hears from every rank by a message, and then answers all: it alone knows who is missing.
// Where one is, the group ends, with an error on every rank that names who. Whether the others come
// is decided here, not by the time-outs of the messages, which are long.
void TorchGroup::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const Milliseconds timeout =
      options.timeout == c10d::kUnsetTimeout ? effective({}) : options.timeout;
  OperationOptions patient;
  patient.timeout_ms = 2 * timeout.count() + effective({}).count();
  patient.of_library = true;
  if (rank_ == 0) {
    await_all(timeout, wait_all_ranks, patient);
  } else {
    await_release(timeout, patient);
  }
}

void TorchGroup::await_release(Milliseconds timeout, const OperationOptions& patient) {
  const Call calls[] = {Call::send({}, 0, kMonitoredBarrierTag), Call::recv({}, 0, kReleaseTag)};
  Result<ciuic::Work> work = communicator_->submit(calls, patient);
  throw_unless_ok(work.status(), timeout);
  // Rank 0 may have come later, and it is for it to say who is missing.
  const int64_t limit_ms = (timeout + std::min(timeout, kGrace)).count();
  Waited waited = wait_interruptibly(*work, communicator_.get(), limit_ms);
  if (waited.is_interrupted || waited.status.ok()) return;
  Status status = std::move(waited.status);
  if (waited.is_too_early) {
    const std::string why =
        "rank 0 did not release monitoredBarrier in " + std::to_string(timeout.count()) + " ms";
    (void)communicator_->abort(why);
    status = {StatusCode::kAborted, why};
  }
  const std::string rank = std::to_string(rank_);
  const std::string reached = "[Rank " + rank + "]: Rank " + rank +
                              " successfully reached monitoredBarrier, but received errors while "
                              "waiting for send/recv from rank 0. Please check rank 0 logs for "
                              "faulty rank. ";
  throw_unless_ok({status.code(), reached + status.message()}, timeout);
}

void TorchGroup::await_all(Milliseconds timeout, bool wait_all_ranks,
                           const OperationOptions& patient) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const auto fail = [&](const std::string& text) {
    (void)communicator_->abort(text);
    throw_unless_ok({StatusCode::kAborted, "[Rank 0]: " + text}, timeout);
  };
  if (timeout.count() <= 0) fail("Rank 0 timed out in monitoredBarrier after 0 ms.");
  std::vector<ciuic::Work> arrivals;
  for (int rank = 1; rank < size_; ++rank) {
    Result<ciuic::Work> work = communicator_->recv({}, rank, kMonitoredBarrierTag, patient);
    throw_unless_ok(work.status(), timeout);
    arrivals.push_back(std::move(*work));
  }
  std::string missing;
  int count = 0;
  for (int rank = 1; rank < size_ && (count == 0 || wait_all_ranks); ++rank) {
    ciuic::Work& arrival = arrivals[static_cast<size_t>(rank - 1)];
    const auto left = deadline - std::chrono::steady_clock::now();
    const int64_t left_ms = std::chrono::duration_cast<Milliseconds>(left).count();
    const Waited waited =
        wait_interruptibly(arrival, communicator_.get(), std::max<int64_t>(0, left_ms));
    if (waited.is_interrupted) return;
    if (waited.is_too_early) {
      missing += (count++ == 0 ? "" : ", ") + std::to_string(rank);
    } else {
      throw_unless_ok(waited.status, timeout);
    }
  }
  if (count > 0) {
    fail((count == 1 ? "Rank " : "Ranks ") + missing + " failed to pass monitoredBarrier in " +
         std::to_string(timeout.count()) + " ms");
  }
  std::vector<Call> releases;
  for (int rank = 1; rank < size_; ++rank) releases.push_back(Call::send({}, rank, kReleaseTag));
  Result<ciuic::Work> work = communicator_->submit(releases, patient);
  throw_unless_ok(work.status(), timeout);
  const Waited waited = wait_interruptibly(*work, communicator_.get());
  if (!waited.is_interrupted) throw_unless_ok(waited.status, timeout);
}

}  // namespace ciuic::torch_backend
