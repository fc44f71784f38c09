// SPDX-License-Identifier: Apache-2.0
// nccl_group.cc: start, end, and what time brings.

#include "backend/nccl/nccl_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ciuic::backend {

// What needs a rank that is gone may have all that it needed.
static constexpr TimeNs kGoneGrace = 250'000'000;

// NCCL may see that a rank is gone before the control plane does, which knows which and why.
static constexpr TimeNs kRemoteGrace = 2'000'000'000;

static constexpr const char* kNotTakenBack =
    " What is under way in NCCL was not taken back in time: end this process, and do not use the "
    "memory of unfinished operations until then.";

void NcclGroup::end_work(NcclOperation* operation, const Status& status) {
  if (operation->is_numbered) {
    for (uint32_t number = operation->first;; ++number) {
      options_.trace.ended(number, status.code());
      if (number == operation->last) break;
    }
  }
  std::exchange(operation->state, nullptr)->finish(status);
}

void NcclGroup::start(const std::shared_ptr<NcclOperation>& operation) {
  if (has_ended_) {
    is_told_ = true;
    end_work(operation.get(), status_);
    return;
  }
  operations_.push_back(operation);
  if (lost_rank_ >= 0) report_lost(*operation);
}

std::shared_ptr<NcclOperation> NcclGroup::oldest_launched() const {
  if (operations_.empty() || !status_.ok()) return nullptr;
  const auto& oldest = operations_.front();
  const bool is_launched =
      oldest->end != nullptr && oldest->end->is_recorded.load(std::memory_order_acquire);
  return is_launched ? oldest : nullptr;
}

bool NcclGroup::is_awaited(TimeNs now) const {
  if (!status_.ok()) return false;
  return std::any_of(operations_.begin(), operations_.end(), [now](const auto& operation) {
    return operation->state != nullptr && operation->state->is_ordered() &&
           operation->deadline > now;
  });
}

void NcclGroup::finish(const std::shared_ptr<NcclOperation>& operation) {
  if (!status_.ok()) return;
  const auto found = std::find(operations_.begin(), operations_.end(), operation);
  if (found == operations_.end()) return;
  operations_.erase(found);
  end_work(operation.get(), Status());
}

void NcclGroup::report(const engine::Cause& cause) {
  if (!status_.ok()) return;
  status_ = cause.status;
  if (options_.on_cause) options_.on_cause(cause);
}

void NcclGroup::end(const Status& status, TimeNs now) {
  if (has_ended_) return;
  has_ended_ = true;
  ended_at_ = now;
  status_ = status;
}

void NcclGroup::end_works() {
  for (const auto& operation : std::exchange(operations_, {})) {
    is_told_ = true;
    end_work(operation.get(), status_);
  }
}

std::string NcclGroup::text_of(const NcclOperation& operation) const {
  if (!operation.is_numbered) return fmt::format("{} (on rank {})", operation.name, options_.rank);
  return fmt::format("{} (operation {} of its group, on rank {})", operation.name, operation.first,
                     options_.rank);
}

void NcclGroup::report_late(const NcclOperation& operation) {
  report({.status = {StatusCode::kTimeout,
                     fmt::format("{} did not end within {} ms in NCCL, which does not tell whom it "
                                 "waits for. timeout_ms (timeout_s in Python) allows more time.",
                                 text_of(operation), operation.timeout_ms)},
          .has_operation = operation.is_numbered,
          .sequence = operation.first,
          .operation = operation.name,
          .is_late = true});
}

void NcclGroup::report_lost(const NcclOperation& operation) {
  report(
      {.status = {StatusCode::kPeerLost, fmt::format("{}, while rank {} was in {}", lost_.message(),
                                                     options_.rank, operation.name)},
       .about = lost_rank_,
       .has_operation = operation.is_numbered,
       .sequence = operation.first,
       .operation = operation.name});
}

void NcclGroup::check(TimeNs now) {
  if (has_ended_ && !operations_.empty() && now - ended_at_ >= options_.grace) {
    status_ = {status_.code(), status_.message() + kNotTakenBack};
    end_works();
  }
  if (!status_.ok() || operations_.empty()) return;
  const NcclOperation& oldest = *operations_.front();
  if (lost_rank_ >= 0 && now - lost_at_ >= kGoneGrace) report_lost(oldest);
  const NcclOperation* late = nullptr;
  for (const auto& operation : operations_) {
    if (operation->deadline > now) continue;
    if (late == nullptr || operation->deadline < late->deadline) late = operation.get();
  }
  if (late != nullptr) report_late(*late);
}

void NcclGroup::check_comm(const NcclComm::State& state, TimeNs now) {
  if (state.error.ok() || operations_.empty() || !status_.ok()) return;
  if (state.is_remote) {
    remote_error_at_ = std::min(remote_error_at_, now);
    if (now - remote_error_at_ < kRemoteGrace) return;
  }
  const NcclOperation& oldest = *operations_.front();
  report({.status = {state.error.code(),
                     fmt::format("{}: {}", text_of(oldest), state.error.message())},
          .has_operation = oldest.is_numbered,
          .sequence = oldest.first,
          .operation = oldest.name});
}

// Who leaves in good order has had its part in what all have called.
void NcclGroup::mark_gone(int rank, const Status& why, bool in_good_order, TimeNs now) {
  if (in_good_order || lost_rank_ >= 0) return;
  lost_rank_ = rank;
  lost_ = why;
  lost_at_ = now;
}

void NcclGroup::add_to(engine::GroupProgress* progress) const {
  progress->has_ended |= has_ended_;
  for (const auto& operation : operations_) {
    if (!operation->is_numbered) {
      progress->message_since = std::min(progress->message_since, operation->called_at);
    } else if (progress->waits_since == kNever ||
               static_cast<int32_t>(operation->first - progress->lowest) < 0) {
      progress->lowest = operation->first;
      progress->waits_since = operation->called_at;
    }
  }
}

bool NcclGroup::needs(uint32_t sequence) const {
  return std::any_of(operations_.begin(), operations_.end(), [sequence](const auto& operation) {
    return operation->is_numbered &&
           sequence - operation->first <= operation->last - operation->first;
  });
}

}  // namespace ciuic::backend
