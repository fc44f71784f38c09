// SPDX-License-Identifier: Apache-2.0
// sparse.cc: all_reduce of sparse (COO) tensors: every rank gets the entries of all, in rank order,
// and adds up what stands at the same place, so that all have the same bits.
//
// Two steps, because nobody knows how many entries the others have: an all-gather of the shapes,
// numbered at the call as every operation, then messages with the entries, which are matched by a
// tag of their own and need no number. So the second step may start later, in any thread.

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue_inl.h>

#include <array>
#include <utility>

#include "errors.h"
#include "group.h"
#include "interrupts.h"
#include "tensors.h"

namespace ciuic::torch_backend {

namespace {

constexpr const char* kSparse = "all_reduce";  // its name in errors
constexpr int kFirstTag = kLastUserTag + 16;
constexpr uint32_t kTags = 4000;

// A rank's tensor: entries, dimensions that are sparse, all dimensions, sizes.
constexpr size_t kMostDimensions = 29;
using Shape = std::array<int64_t, kMostDimensions + 3>;

Shape shape_of(const at::Tensor& tensor) {
  if (tensor.dim() > static_cast<int64_t>(kMostDimensions)) {
    refuse(kSparse,
           "a sparse tensor has at most " + std::to_string(kMostDimensions) + " dimensions here");
  }
  Shape shape{};
  shape[0] = tensor._nnz();
  shape[1] = tensor.sparse_dim();
  shape[2] = tensor.dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), shape.begin() + 3);
  return shape;
}

class SparseWork final : public c10d::Work {
 public:
  SparseWork(std::shared_ptr<Communicator> communicator, at::Tensor tensor, bool is_average,
             int tag, OperationOptions options)
      : c10d::Work(communicator->rank(), c10d::OpType::_ALLREDUCE_SPARSE),
        communicator_(std::move(communicator)),
        tensor_(std::move(tensor)),
        is_average_(is_average),
        tag_(tag),
        options_(options) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    own_ = tensor_.coalesce();
    indices_ = plain(own_._indices());
    values_ = plain(own_._values());
    shape_ = shape_of(own_);
    shapes_.resize(static_cast<size_t>(communicator_->size()));
  }

  Status start() {
    (void)elements_of(values_, kSparse);
    const auto count = static_cast<int64_t>(shape_.size());
    Result<ciuic::Work> work = communicator_->all_gather(
        {shape_.data(), count, DataType::kInt64, {}},
        {shapes_.data(), count * communicator_->size(), DataType::kInt64, {}}, options_);
    if (!work.ok()) return work.status();
    shapes_work_ = std::move(*work);
    return {};
  }

  // Goes on by itself when a step has ended; else wait() does.
  void go_on_alone() {
    auto self = c10::intrusive_ptr<SparseWork>::unsafe_reclaim_from_nonowning(this);
    shapes_work_.on_done([self](const Status&) {
      self->exchange();
      self->values_work_.on_done([self](const Status&) { self->end(); });
    });
  }

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    if (timeout != kNoTimeout) {
      if (!c10d::Work::wait(timeout)) return false;
    } else {
      bool is_interrupted = wait_interruptibly(shapes_work_, communicator_.get()).is_interrupted;
      exchange();
      is_interrupted |= wait_interruptibly(values_work_, communicator_.get()).is_interrupted;
      end();
      if (is_interrupted) return false;
    }
    c10::intrusive_ptr<c10::ivalue::Future> future;
    std::exception_ptr error;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      future = future_;
      error = exception_;
    }
    if (future) future->wait();
    if (error) std::rethrow_exception(error);
    return true;
  }

  Tensors result() override { return {tensor_}; }
  const ciuic::Work& first_step() const { return shapes_work_; }
  void release_resources() override {
    for (at::Tensor* tensor : {&tensor_, &own_, &indices_, &values_}) tensor->reset();
    all_indices_.clear();
    all_values_.clear();
    future_.reset();
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    bool has_ended = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (future_) return future_;
      future_ =
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
      has_ended = completed_;
    }
    if (has_ended) complete();
    return future_;
  }

 private:
  // The second step; in whatever thread comes first, the others wait for it.
  void exchange() {
    const std::lock_guard<std::mutex> lock(steps_);
    if (std::exchange(has_exchanged_, true)) return;
    status_ = shapes_work_.status();
    if (status_.ok()) status_ = check_shapes();
    if (!status_.ok()) return;
    const at::AutoDispatchBelowADInplaceOrView guard;
    std::vector<Call> calls;
    const int rank = communicator_->rank();
    for (int peer = 0; peer < communicator_->size(); ++peer) {
      const int64_t entries = shapes_[static_cast<size_t>(peer)][0];
      if (peer == rank) {
        all_indices_.push_back(indices_);
        all_values_.push_back(values_);
        continue;
      }
      std::vector<int64_t> of_values = values_.sizes().vec();
      of_values[0] = entries;
      all_indices_.push_back(at::empty({shape_[1], entries}, indices_.options()));
      all_values_.push_back(at::empty(of_values, values_.options()));
      for (const auto& [mine, theirs] :
           {std::pair(indices_, all_indices_.back()), std::pair(values_, all_values_.back())}) {
        calls.push_back(Call::send(payload_of(mine), peer, tag_));
        calls.push_back(Call::recv(payload_of(theirs), peer, tag_));
      }
    }
    Result<ciuic::Work> work = communicator_->submit(calls, options_);
    status_ = work.status();
    if (work.ok()) values_work_ = std::move(*work);
  }

  Status check_shapes() const {
    for (size_t rank = 0; rank < shapes_.size(); ++rank) {
      if (std::equal(shapes_[rank].begin() + 1, shapes_[rank].end(), shape_.begin() + 1)) continue;
      return {StatusCode::kMismatch, "all_reduce: the sparse tensor of rank " +
                                         std::to_string(rank) +
                                         " has another shape than that of "
                                         "rank " +
                                         std::to_string(communicator_->rank())};
    }
    return {};
  }

  void end() {
    {
      const std::lock_guard<std::mutex> lock(steps_);
      if (std::exchange(has_ended_, true)) return;
      if (status_.ok()) status_ = values_work_.status();
      std::exception_ptr error = error_of(status_, std::chrono::milliseconds(options_.timeout_ms));
      if (!error) {
        try {
          add_up();
        } catch (...) {
          error = std::current_exception();
        }
      }
      finish(error);  // sets completed_ and exception_, and wakes who waits
    }
    complete();
  }

  void add_up() {
    const at::AutoDispatchBelowADInplaceOrView guard;
    at::Tensor sum = at::_sparse_coo_tensor_unsafe(at::cat(all_indices_, 1),
                                                   at::cat(all_values_, 0), own_.sizes())
                         .coalesce();
    if (is_average_) sum.div_(communicator_->size());
    tensor_.copy_(sum);
  }

  void complete() {
    c10::intrusive_ptr<c10::ivalue::Future> future;
    std::exception_ptr error;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!future_ || !completed_ || std::exchange(is_completed_future_, true)) return;
      future = future_;
      error = exception_;
    }
    if (error) {
      future->setError(error);
    } else {
      future->markCompleted(Tensors{tensor_});
    }
  }

  const std::shared_ptr<Communicator> communicator_;
  at::Tensor tensor_;
  const bool is_average_;
  const int tag_;
  const OperationOptions options_;
  at::Tensor own_, indices_, values_;
  Shape shape_;
  std::vector<Shape> shapes_;

  std::mutex steps_;  // guards what follows; taken before mutex_
  bool has_exchanged_ = false;
  bool has_ended_ = false;
  Status status_;
  Tensors all_indices_, all_values_;
  ciuic::Work shapes_work_, values_work_;

  c10::intrusive_ptr<c10::ivalue::Future> future_;  // guarded by mutex_
  bool is_completed_future_ = false;
};

}  // namespace

TorchGroup::WorkPointer TorchGroup::allreduce_sparse(Tensors& tensors,
                                                     const c10d::AllreduceOptions& options) {
  if (tensors.size() != 1 || !tensors[0].is_sparse() || !tensors[0].is_cpu()) {
    refuse(kSparse, "it takes one sparse (COO) tensor, on the CPU");
  }
  const bool is_average = options.reduceOp.op_ == c10d::ReduceOp::AVG;
  if (!is_average && options.reduceOp.op_ != c10d::ReduceOp::SUM) {
    refuse(kSparse, "of sparse tensors there are SUM and AVG alone");
  }
  const bool blocks = !options.asyncOp && !is_coalescing_.load();
  const Milliseconds timeout = effective(options.timeout);
  sequence_.fetch_add(1, std::memory_order_relaxed);
  int tag = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    tag = kFirstTag + static_cast<int>(sparse_calls_++ % kTags);
  }
  OperationOptions how;
  how.timeout_ms = timeout.count();
  how.wait_follows = blocks;
  auto work = c10::make_intrusive<SparseWork>(communicator_, tensors[0], is_average, tag, how);
  throw_unless_ok(work->start(), timeout);
  if (blocks) {
    work->wait();
    return work;
  }
  earlier_.add(work->first_step(), work);
  work->go_on_alone();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_coalescing_.load()) coalesced_.push_back(work);
  return work;
}

}  // namespace ciuic::torch_backend
