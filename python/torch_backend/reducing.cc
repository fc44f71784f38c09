// SPDX-License-Identifier: Apache-2.0
// reducing.cc: all_reduce, reduce and reduce_scatter, of dense tensors.

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "errors.h"
#include "group.h"
#include "tensors.h"

namespace ciuic::torch_backend {

namespace {

// PREMUL_SUM is SUM of what scaled() gives.
ReduceOp op_of(const c10d::ReduceOp& op, const char* operation) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM: return ReduceOp::kSum;
    case c10d::ReduceOp::AVG: return ReduceOp::kAvg;
    case c10d::ReduceOp::PRODUCT: return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN: return ReduceOp::kMin;
    case c10d::ReduceOp::MAX: return ReduceOp::kMax;
    case c10d::ReduceOp::BAND: return ReduceOp::kBAnd;
    case c10d::ReduceOp::BOR: return ReduceOp::kBOr;
    case c10d::ReduceOp::BXOR: return ReduceOp::kBXor;
    default: refuse(operation, "unknown ReduceOp");
  }
}

bool is_scaled(const c10d::ReduceOp& op) { return op.op_ == c10d::ReduceOp::PREMUL_SUM; }

// What PREMUL_SUM adds up: a plain copy of the tensor, times the factor.
at::Tensor scaled(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* operation) {
  const auto* by = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  if (by == nullptr) refuse(operation, "PREMUL_SUM has no factor");
  const at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor copy = at::empty(tensor.sizes(), tensor.options());
  copy.copy_(tensor);
  if (by->tensor_factor.defined()) {
    copy.mul_(by->tensor_factor);
  } else {
    copy.mul_(by->double_factor);
  }
  return copy;
}

at::Tensor plain_input(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* operation) {
  return is_scaled(op) ? scaled(tensor, op, operation) : plain(tensor);
}

void check_parts(const at::Tensor& output, const at::Tensor& input, int size) {
  if (output.scalar_type() != input.scalar_type()) {
    refuse("reduce_scatter", "output tensor must have the same type as input tensor");
  }
  if (input.numel() != output.numel() * size) {
    refuse("reduce_scatter", "input tensor must be the same size as output size times world size");
  }
}

}  // namespace

TorchGroup::WorkPointer TorchGroup::allreduce(Tensors& tensors,
                                              const c10d::AllreduceOptions& options) {
  constexpr const char* kName = "all_reduce";
  if (tensors.size() == 1 && tensors[0].defined() && tensors[0].is_sparse()) {
    return allreduce_sparse(tensors, options);
  }
  const at::Tensor& tensor = single(tensors, kName);
  const ReduceOp op = op_of(options.reduceOp, kName);
  const Manner manner{c10d::OpType::ALLREDUCE, "ciuic:all_reduce", options.asyncOp, options.timeout,
                      tensors};
  Ending ending;
  ending.results.push_back(tensor);
  if (is_plain(tensor) && !is_scaled(options.reduceOp)) {
    const MutableBuffer buffer = elements_of(tensor, kName);
    return launch(Call::all_reduce(buffer, buffer, op), manner, std::move(ending));
  }
  const at::Tensor input = plain_input(tensor, options.reduceOp, kName);
  const at::Tensor output = is_plain(tensor) ? tensor : input;
  ending.keep = {input, output};
  ending.finish = copying_back(tensor, output);
  return launch(Call::all_reduce(elements_of(input, kName), elements_of(output, kName), op), manner,
                std::move(ending));
}

TorchGroup::WorkPointer TorchGroup::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  constexpr const char* kName = "all_reduce";
  const ReduceOp op = op_of(options.reduceOp, kName);
  if (tensors.empty()) refuse(kName, "the list of tensors is empty");
  Ending ending;
  ending.results.append(tensors.begin(), tensors.end());
  std::vector<Call> calls;
  Tensors targets;
  for (const at::Tensor& tensor : tensors) {
    check_dense(tensor, kName);
    const at::Tensor input = plain_input(tensor, options.reduceOp, kName);
    const at::Tensor output = is_plain(tensor) ? tensor : input;
    calls.push_back(Call::all_reduce(elements_of(input, kName), elements_of(output, kName), op));
    ending.keep.push_back(input);
    targets.push_back(output);
  }
  ending.finish = copying_back(tensors, targets);
  return launch(calls,
                {c10d::OpType::ALLREDUCE_COALESCED, "ciuic:all_reduce_coalesced", options.asyncOp,
                 options.timeout, tensors},
                std::move(ending));
}

TorchGroup::WorkPointer TorchGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  constexpr const char* kName = "reduce";
  const at::Tensor& tensor = single(tensors, kName);
  const int root = check_peer(kName, options.rootRank);
  const at::Tensor input = plain_input(tensor, options.reduceOp, kName);
  Ending ending;
  ending.results.push_back(tensor);
  MutableBuffer output;
  if (root == rank_) {
    const at::Tensor target = is_plain(tensor) ? tensor : input;
    output = elements_of(target, kName);
    ending.finish = copying_back(tensor, target);
  }
  ending.keep.push_back(input);
  return launch(
      Call::reduce(elements_of(input, kName), output, op_of(options.reduceOp, kName), root),
      {c10d::OpType::REDUCE, "ciuic:reduce", options.asyncOp, options.timeout, tensors},
      std::move(ending));
}

TorchGroup::WorkPointer TorchGroup::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                   const c10d::ReduceScatterOptions& options) {
  constexpr const char* kName = "reduce_scatter";
  const at::Tensor& output = single(outputs, kName);
  if (inputs.size() != 1 || inputs[0].size() != static_cast<size_t>(size_)) {
    refuse(kName, "invalid input tensor list size, must be world size");
  }
  if (inputs[0][static_cast<size_t>(rank_)].numel() != output.numel() ||
      inputs[0][0].scalar_type() != output.scalar_type()) {
    refuse(kName, "output tensor must have the size and type of its part of the inputs");
  }
  Tensors parts = inputs[0];
  if (is_scaled(options.reduceOp)) {
    for (at::Tensor& part : parts) part = scaled(part, options.reduceOp, kName);
  }
  Row row = row_of_inputs(parts, kName);
  (void)elements_of(output, kName);
  const at::Tensor target = plain_output(output);
  Ending ending;
  ending.results.push_back(output);
  ending.keep = std::move(parts);
  ending.keep.insert(ending.keep.end(), {row.own, target});
  ending.finish = copying_back(output, target);
  const Manner manner{c10d::OpType::REDUCE_SCATTER, "ciuic:reduce_scatter", options.asyncOp,
                      options.timeout, inputs[0]};
  const ReduceOp op = op_of(options.reduceOp, kName);
  if (row.is_even()) {
    return launch(Call::reduce_scatter(row.buffer, elements_of(target, kName), op), manner,
                  std::move(ending));
  }
  return launch(
      Call::reduce_scatter_v(row.buffer, std::move(row.counts), elements_of(target, kName), op),
      manner, std::move(ending));
}

TorchGroup::WorkPointer TorchGroup::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  constexpr const char* kName = "reduce_scatter";
  check_dense(output, kName);
  check_dense(input, kName);
  check_parts(output, input, size_);
  const at::Tensor source = plain_input(input, options.reduceOp, kName);
  const at::Tensor target = plain_output(output);
  Ending ending;
  ending.results.push_back(output);
  ending.keep = {source, target};
  ending.finish = copying_back(output, target);
  return launch(Call::reduce_scatter(elements_of(source, kName), elements_of(target, kName),
                                     op_of(options.reduceOp, kName)),
                {c10d::OpType::_REDUCE_SCATTER_BASE, "ciuic:reduce_scatter", options.asyncOp,
                 options.timeout, std::span(&input, 1)},
                std::move(ending));
}

TorchGroup::WorkPointer TorchGroup::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  constexpr const char* kName = "reduce_scatter";
  if (outputs.size() != inputs.size() || outputs.empty()) {
    refuse(kName, "requires input/output tensor lists to have the same length");
  }
  Ending ending;
  ending.results.append(outputs.begin(), outputs.end());
  std::vector<Call> calls;
  Tensors targets;
  const ReduceOp op = op_of(options.reduceOp, kName);
  for (size_t i = 0; i < outputs.size(); ++i) {
    check_dense(outputs[i], kName);
    check_dense(inputs[i], kName);
    check_parts(outputs[i], inputs[i], size_);
    ending.keep.push_back(plain_input(inputs[i], options.reduceOp, kName));
    targets.push_back(plain_output(outputs[i]));
    calls.push_back(Call::reduce_scatter(elements_of(ending.keep.back(), kName),
                                         elements_of(targets.back(), kName), op));
  }
  ending.keep.insert(ending.keep.end(), targets.begin(), targets.end());
  ending.finish = copying_back(outputs, targets);
  return launch(calls,
                {c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, "ciuic:reduce_scatter_coalesced",
                 options.asyncOp, options.timeout, inputs},
                std::move(ending));
}

}  // namespace ciuic::torch_backend
