// SPDX-License-Identifier: Apache-2.0
// persistent_operation.cc: starts what the backend has prepared.

#include "ciuic/persistent_operation.h"

#include "backend/backend.h"
#include "base/fork.h"

namespace ciuic {

PersistentOperation::PersistentOperation(std::unique_ptr<backend::Prepared> prepared)
    : prepared_(std::move(prepared)), made_in_(fork_generation()) {}

PersistentOperation::PersistentOperation(PersistentOperation&& other) noexcept = default;
PersistentOperation& PersistentOperation::operator=(PersistentOperation&& other) noexcept = default;
PersistentOperation::~PersistentOperation() = default;

Result<Work> PersistentOperation::start(const Stream& stream) {
  prepared_->set_stream(stream);
  return start();
}

Result<Work> PersistentOperation::start() {
  if (made_in_ != fork_generation()) {
    return Status(StatusCode::kClosed,
                  "start: this process was forked from the one that joined the group");
  }
  const bool is_ordered = last_.state() != nullptr && last_.state()->is_ordered();
  if (!is_ordered && !last_.done()) {
    return Status(StatusCode::kInvalidArgument,
                  "start: what was started before has not ended; wait for it first");
  }
  Result<Work> work = prepared_->start();
  if (work.ok()) last_ = *work;
  return work;
}

}  // namespace ciuic
