// SPDX-License-Identifier: Apache-2.0
// group.cc: a group's life: join, split, shrink, errors, end.

#include "group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "errors.h"
#include "interrupts.h"
#include "store.h"

namespace ciuic::torch_backend {

namespace {

// The groups of this process that have not been destroyed. Those of a parent that was forked are in
// it too; closing them does nothing.
std::mutex groups_mutex;
std::set<TorchGroup*>& groups() {
  static auto* const all = new std::set<TorchGroup*>;  // used until the process ends
  return *all;
}

}  // namespace

c10::intrusive_ptr<TorchGroup> TorchGroup::join(const StorePointer& store, int rank, int size,
                                                c10::intrusive_ptr<Options> options) {
  const GilRelease no_gil;  // a store may be Python's
  CommunicatorOptions joining;
  joining.rank = rank;
  joining.size = size;
  joining.store = std::make_shared<TorchStore>(store);
  joining.group_name = options->group_name.empty() ? "torch" : "torch/" + options->group_name;
  joining.timeout_ms = options->timeout.count();
  joining.backend = options->carrier;
  joining.device = options->device;
  Result<std::unique_ptr<Communicator>> communicator = Communicator::create(joining);
  throw_unless_ok(communicator.status(), options->timeout);
  return c10::make_intrusive<TorchGroup>(std::move(*communicator), std::move(options));
}

TorchGroup::TorchGroup(std::unique_ptr<Communicator> communicator,
                       c10::intrusive_ptr<Options> options)
    : Backend(communicator->rank(), communicator->size()),
      options_(std::move(options)),
      communicator_(std::move(communicator)),
      is_by_nccl_(communicator_->describe().starts_with(R"({"backend":"nccl")")),
      timeout_ms_(options_->timeout.count()) {
  init();
  const std::lock_guard<std::mutex> lock(groups_mutex);
  groups().insert(this);
}

TorchGroup::~TorchGroup() {
  {
    const std::lock_guard<std::mutex> lock(groups_mutex);
    groups().erase(this);
  }
  const GilRelease no_gil;  // callbacks of what ends here may want it
  (void)communicator_->close();
  const_cast<std::shared_ptr<Communicator>&>(communicator_).reset();
}

void TorchGroup::close_all() {
  const GilRelease no_gil;
  const std::lock_guard<std::mutex> lock(groups_mutex);
  for (TorchGroup* group : groups()) (void)group->communicator_->close();
}

void TorchGroup::setTimeout(Milliseconds timeout) {
  options_->timeout = timeout;
  timeout_ms_.store(timeout.count(), std::memory_order_relaxed);
}

void TorchGroup::abort() {
  const GilRelease no_gil;
  (void)communicator_->abort("torch's abort()");
  (void)communicator_->close();
}

void TorchGroup::shutdown() {
  const GilRelease no_gil;
  // An error that no call has raised yet is not raised by the end of the group either.
  (void)communicator_->close();
}

c10d::ErrorType TorchGroup::getError() {
  switch (communicator_->status().code()) {
    case StatusCode::kOk:
    case StatusCode::kClosed: return c10d::ErrorType::SUCCESS;
    case StatusCode::kTimeout: return c10d::ErrorType::TIMEOUT;
    case StatusCode::kPeerLost: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
  }
}

// Options of our own for a group that is made of this one; without given ones, this one's.
c10::intrusive_ptr<TorchGroup::Options> TorchGroup::options_from(
    const OptionsPointer& given) const {
  const c10d::Backend::Options& from = given ? *given : *options_;
  auto options = c10::make_intrusive<Options>();
  options->timeout = from.timeout;
  options->group_name = from.group_name;
  options->group_desc = from.group_desc;
  options->global_ranks_in_group = from.global_ranks_in_group;
  options->carrier = options_->carrier;
  options->device = options_->device;
  return options;
}

c10::intrusive_ptr<c10d::Backend> TorchGroup::split(const StorePointer& store,
                                                    const std::vector<int>& ranks,
                                                    const OptionsPointer& options) {
  const auto place = std::find(ranks.begin(), ranks.end(), rank_);
  if (place == ranks.end()) return nullptr;
  auto own = options_from(options);
  own->global_ranks_in_group.assign(ranks.begin(), ranks.end());
  return join(store, static_cast<int>(place - ranks.begin()), static_cast<int>(ranks.size()),
              std::move(own));
}

c10::intrusive_ptr<c10d::Backend> TorchGroup::merge(const StorePointer& store,
                                                    const OptionsPointer& options, const int& rank,
                                                    const int& size) {
  return join(store, rank, size, options_from(options));
}

// While the group is whole, the others make a group of their own, without those to be excluded;
// once it has ended by an error, those that are not gone make one, and nobody is excluded who is
// there, because nobody can tell.
c10::intrusive_ptr<c10d::Backend> TorchGroup::shrink(const std::vector<int64_t>& ranks_to_exclude,
                                                     int /*flags*/, const OptionsPointer& options) {
  const GilRelease no_gil;
  const std::set<int64_t> excluded(ranks_to_exclude.begin(), ranks_to_exclude.end());
  if (excluded.count(rank_) != 0) refuse("shrink", "this rank is one to be excluded");
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank) {
    if (excluded.count(rank) == 0) ranks.push_back(rank);
  }
  const Milliseconds timeout = effective({});
  Result<std::unique_ptr<Communicator>> made = communicator_->status().ok()
                                                   ? communicator_->subgroup(ranks, timeout.count())
                                                   : communicator_->shrink(timeout.count());
  throw_unless_ok(made.status(), timeout);
  if ((*made)->size() != static_cast<int>(ranks.size())) {
    refuse("shrink", std::to_string((*made)->size()) + " ranks are left, not the " +
                         std::to_string(ranks.size()) + " that were not excluded");
  }
  auto own = options_from(options);
  own->timeout = timeout;
  return c10::make_intrusive<TorchGroup>(std::move(*made), std::move(own));
}

// NOLINTNEXTLINE(google-runtime-int): torch's type
at::Tensor TorchGroup::allocateTensor(long size, at::TensorOptions options) {
  constexpr const char* kName = "allocate_tensor";
  const at::ScalarType type = c10::typeMetaToScalarType(options.dtype());
  if (options.device().is_cuda()) return at::empty({size}, options);  // NCCL shares by itself
  if (!options.device().is_cpu()) refuse(kName, "only CPU tensors can be shared");
  if (c10::isQIntType(type)) refuse(kName, "elements that have scales beside them");
  const auto bytes = static_cast<uint64_t>(size) * c10::elementSize(type);
  if (size < 0 || bytes / c10::elementSize(type) != static_cast<uint64_t>(size)) {
    refuse(kName, "no tensor has " + std::to_string(size) + " elements");
  }
  Result<std::shared_ptr<std::byte>> memory = communicator_->allocate(std::max<size_t>(bytes, 1));
  throw_unless_ok(memory.status(), effective({}));
  std::byte* const start = memory->get();
  return at::from_blob(start, {size}, [kept = std::move(*memory)](void*) {}, options);
}

std::unordered_map<std::string, uint64_t> TorchGroup::getMemoryStats() {
  const MemoryUsage usage = communicator_->memory_usage();
  return {{"staging", usage.staging},
          {"segments", usage.segments},
          {"links", usage.links},
          {"tensors", usage.tensors}};
}

}  // namespace ciuic::torch_backend
