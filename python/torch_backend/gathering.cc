// SPDX-License-Identifier: Apache-2.0
// gathering.cc: all_gather and gather.

#include <ATen/ATen.h>

#include "errors.h"
#include "group.h"
#include "tensors.h"

namespace ciuic::torch_backend {

static void check_gathered(const at::Tensor& output, const at::Tensor& input, int size) {
  check_dense(output, "all_gather");
  check_dense(input, "all_gather");
  if (output.scalar_type() != input.scalar_type()) {
    refuse("all_gather", "output tensor must have the same type as input tensor");
  }
  if (output.numel() != input.numel() * size) {
    refuse("all_gather", "output tensor size must be equal to world_size times input tensor size");
  }
}

// One of a list of outputs and the input that this rank gives to it.
static void check_own(const char* operation, const at::Tensor& output, const at::Tensor& input) {
  if (output.scalar_type() != input.scalar_type()) {
    refuse(operation, "invalid tensor type: the output's is not that of the input");
  }
  if (output.sizes() != input.sizes()) {
    refuse(operation, "invalid tensor size: the output for this rank has not that of the input");
  }
}

// Into a list, one tensor for each rank; they may differ in size, alike on all ranks.
TorchGroup::WorkPointer TorchGroup::allgather(TensorLists& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  constexpr const char* kName = "all_gather";
  const at::Tensor& input = single(inputs, kName);
  if (outputs.size() != 1 || outputs[0].size() != static_cast<size_t>(size_)) {
    refuse(kName, "it wants one list of outputs, with as many tensors as there are ranks");
  }
  const Tensors& list = outputs[0];
  Row row = row_of_outputs(list, kName);
  check_own(kName, list[static_cast<size_t>(rank_)], input);
  const at::Tensor source = plain(input);
  Ending ending;
  ending.results.append(list.begin(), list.end());
  ending.keep.push_back(source);
  if (row.own.defined()) ending.keep.push_back(row.own);
  ending.finish = copying_row_back(list, row);
  const Manner manner{c10d::OpType::ALLGATHER, "ciuic:all_gather", options.asyncOp, options.timeout,
                      inputs};
  if (row.is_even()) {
    return launch(Call::all_gather(payload_of(source), row.buffer), manner, std::move(ending));
  }
  return launch(Call::all_gather_v(payload_of(source), row.buffer, std::move(row.counts)), manner,
                std::move(ending));
}

TorchGroup::WorkPointer TorchGroup::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                    const c10d::AllgatherOptions& options) {
  check_gathered(output, input, size_);
  const at::Tensor source = plain(input);
  const at::Tensor target = plain_output(output);
  Ending ending;
  ending.results.push_back(output);
  ending.keep = {source, target};
  ending.finish = copying_back(output, target);
  return launch(Call::all_gather(payload_of(source), payload_of(target)),
                {c10d::OpType::_ALLGATHER_BASE, "ciuic:all_gather", options.asyncOp,
                 options.timeout, std::span(&input, 1)},
                std::move(ending));
}

// outputs[r][i] becomes rank r's inputs[i].
TorchGroup::WorkPointer TorchGroup::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                        const c10d::AllgatherOptions& options) {
  constexpr const char* kName = "all_gather";
  if (inputs.empty()) refuse(kName, "requires non-empty input tensor list");
  if (outputs.size() != static_cast<size_t>(size_)) {
    refuse(kName, "output lists should be equal to world size");
  }
  for (const Tensors& list : outputs) {
    if (list.size() != inputs.size()) {
      refuse(kName, "invalid output size: each list of outputs is as long as that of inputs");
    }
  }
  Ending ending;
  ending.nested = outputs;
  std::vector<Call> calls;
  std::vector<std::pair<Tensors, at::Tensor>> copies;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_dense(inputs[i], kName);
    Tensors column;
    for (const Tensors& list : outputs) column.push_back(list[i]);
    Row row = row_of_outputs(column, kName);
    check_own(kName, column[static_cast<size_t>(rank_)], inputs[i]);
    ending.keep.push_back(plain(inputs[i]));
    const MutableBuffer source = payload_of(ending.keep.back());
    calls.push_back(row.is_even() ? Call::all_gather(source, row.buffer)
                                  : Call::all_gather_v(source, row.buffer, row.counts));
    if (!row.own.defined()) continue;
    ending.keep.push_back(row.own);
    copies.emplace_back(std::move(column), row.own);
  }
  if (!copies.empty()) {
    ending.finish = [copies = std::move(copies)] {
      for (const auto& [list, own] : copies) copy_row_back(list, own);
    };
  }
  return launch(calls,
                {c10d::OpType::ALLGATHER_COALESCED, "ciuic:all_gather_coalesced", options.asyncOp,
                 options.timeout, inputs},
                std::move(ending));
}

TorchGroup::WorkPointer TorchGroup::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  constexpr const char* kName = "all_gather";
  if (outputs.size() != inputs.size() || outputs.empty()) {
    refuse(kName, "requires input/output tensor lists to have the same length");
  }
  Ending ending;
  ending.results.append(outputs.begin(), outputs.end());
  std::vector<Call> calls;
  Tensors targets;
  for (size_t i = 0; i < outputs.size(); ++i) {
    check_gathered(outputs[i], inputs[i], size_);
    ending.keep.push_back(plain(inputs[i]));
    targets.push_back(plain_output(outputs[i]));
    calls.push_back(Call::all_gather(payload_of(ending.keep.back()), payload_of(targets.back())));
  }
  ending.keep.insert(ending.keep.end(), targets.begin(), targets.end());
  ending.finish = copying_back(outputs, targets);
  return launch(calls,
                {c10d::OpType::ALLGATHER_COALESCED, "ciuic:all_gather_coalesced", options.asyncOp,
                 options.timeout, inputs},
                std::move(ending));
}

TorchGroup::WorkPointer TorchGroup::gather(TensorLists& outputs, Tensors& inputs,
                                           const c10d::GatherOptions& options) {
  constexpr const char* kName = "gather";
  const at::Tensor& input = single(inputs, kName);
  const int root = check_peer(kName, options.rootRank);
  const at::Tensor source = plain(input);
  Ending ending;
  ending.keep.push_back(source);
  MutableBuffer target;
  if (root == rank_) {
    if (outputs.size() != 1 || outputs[0].size() != static_cast<size_t>(size_)) {
      refuse(kName,
             "Incorrect output list size. The root wants one list, with as many tensors as "
             "there are ranks");
    }
    const Tensors& list = outputs[0];
    Row row = row_of_outputs(list, kName);
    for (const at::Tensor& output : list) check_own(kName, output, input);
    target = row.buffer;
    if (row.own.defined()) ending.keep.push_back(row.own);
    ending.results.append(list.begin(), list.end());
    ending.finish = copying_row_back(list, row);
  } else if (!outputs.empty()) {
    refuse(kName, "requires empty output on non-root");
  }
  return launch(Call::gather(payload_of(source), target, root),
                {c10d::OpType::GATHER, "ciuic:gather", options.asyncOp, options.timeout, inputs},
                std::move(ending));
}

}  // namespace ciuic::torch_backend
