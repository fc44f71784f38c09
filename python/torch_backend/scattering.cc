// SPDX-License-Identifier: Apache-2.0
// scattering.cc: broadcast, scatter and all_to_all.

#include <ATen/ATen.h>

#include <numeric>

#include "errors.h"
#include "group.h"
#include "tensors.h"

namespace ciuic::torch_backend {

TorchGroup::WorkPointer TorchGroup::broadcast(Tensors& tensors,
                                              const c10d::BroadcastOptions& options) {
  constexpr const char* kName = "broadcast";
  const at::Tensor& tensor = single(tensors, kName);
  const int root = check_peer(kName, options.rootRank);
  Ending ending;
  ending.results.push_back(tensor);
  at::Tensor buffer = tensor;
  if (!is_plain(tensor)) {
    buffer = root == rank_ ? plain(tensor) : plain_output(tensor);
    ending.keep.push_back(buffer);
    if (root != rank_) ending.finish = copying_back(tensor, buffer);
  }
  return launch(
      Call::broadcast(payload_of(buffer), root),
      {c10d::OpType::BROADCAST, "ciuic:broadcast", options.asyncOp, options.timeout, tensors},
      std::move(ending));
}

TorchGroup::WorkPointer TorchGroup::scatter(Tensors& outputs, TensorLists& inputs,
                                            const c10d::ScatterOptions& options) {
  constexpr const char* kName = "scatter";
  const at::Tensor& output = single(outputs, kName);
  const int root = check_peer(kName, options.rootRank);
  const at::Tensor target = plain_output(output);
  Ending ending;
  ending.results.push_back(output);
  ending.keep.push_back(target);
  MutableBuffer source;
  if (root == rank_) {
    if (inputs.size() != 1 || inputs[0].size() != static_cast<size_t>(size_)) {
      refuse(kName,
             "Incorrect input list size. The root wants one list, with as many tensors as "
             "there are ranks");
    }
    Row row = row_of_inputs(inputs[0], kName);
    for (const at::Tensor& input : inputs[0]) {
      if (input.scalar_type() != output.scalar_type()) {
        refuse(kName, "invalid tensor type: the output's is not that of the inputs");
      }
      if (input.sizes() != output.sizes()) {
        refuse(kName, "invalid tensor size: the output's is not that of the inputs");
      }
    }
    source = row.buffer;
    ending.keep.insert(ending.keep.end(), inputs[0].begin(), inputs[0].end());
    ending.keep.push_back(row.own);
  } else if (!inputs.empty()) {
    refuse(kName, "requires empty input on non-root");
  }
  ending.finish = copying_back(output, target);
  return launch(Call::scatter(source, payload_of(target), root),
                {c10d::OpType::SCATTER, "ciuic:scatter", options.asyncOp, options.timeout, outputs},
                std::move(ending));
}

// Lists of one tensor for each rank, of any sizes.
TorchGroup::WorkPointer TorchGroup::alltoall(Tensors& outputs, Tensors& inputs,
                                             const c10d::AllToAllOptions& options) {
  constexpr const char* kName = "all_to_all";
  const auto size = static_cast<size_t>(size_);
  if (inputs.size() != size || outputs.size() != size) {
    refuse(kName, "it wants lists with as many tensors as there are ranks");
  }
  Row source = row_of_inputs(inputs, kName);
  Row target = row_of_outputs(outputs, kName);
  if (inputs[0].scalar_type() != outputs[0].scalar_type()) {
    refuse(kName, "the outputs have not the type of the inputs");
  }
  Ending ending;
  ending.results.append(outputs.begin(), outputs.end());
  ending.keep = inputs;
  ending.keep.insert(ending.keep.end(), {source.own, target.own});
  ending.finish = copying_row_back(outputs, target);
  return launch(
      Call::all_to_all_v(source.buffer, std::move(source.counts), target.buffer,
                         std::move(target.counts)),
      {c10d::OpType::ALLTOALL, "ciuic:all_to_all", options.asyncOp, options.timeout, inputs},
      std::move(ending));
}

namespace {

// Elements for each rank of rows for each rank; checked.
std::vector<int64_t> counts_of(const at::Tensor& tensor, const std::vector<int64_t>& rows,
                               int size) {
  constexpr const char* kName = "all_to_all";
  const int64_t all = tensor.dim() == 0 ? 1 : tensor.size(0);
  std::vector<int64_t> counts = rows;
  if (rows.empty()) {
    if (all % size != 0) refuse(kName, "Tensor's dim 0 does not divide equally across group size");
    counts.assign(static_cast<size_t>(size), all / size);
  } else if (rows.size() != static_cast<size_t>(size)) {
    refuse(kName, "Number of tensor splits not equal to group size");
  } else if (std::accumulate(rows.begin(), rows.end(), int64_t{0}) != all) {
    refuse(kName, "Split sizes doesn't match total dim 0 size");
  }
  const int64_t row = all == 0 ? 0 : tensor.numel() / all * units_of(tensor.scalar_type());
  for (int64_t& count : counts) {
    if (count < 0) refuse(kName, "a split size is negative");
    count *= row;
  }
  return counts;
}

}  // namespace

TorchGroup::WorkPointer TorchGroup::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                  std::vector<int64_t>& output_rows,
                                                  std::vector<int64_t>& input_rows,
                                                  const c10d::AllToAllOptions& options) {
  constexpr const char* kName = "all_to_all";
  check_dense(output, kName);
  check_dense(input, kName);
  if (output.scalar_type() != input.scalar_type()) {
    refuse(kName, "the output has not the type of the input");
  }
  std::vector<int64_t> input_counts = counts_of(input, input_rows, size_);
  std::vector<int64_t> output_counts = counts_of(output, output_rows, size_);
  const at::Tensor source = plain(input);
  const at::Tensor target = plain_output(output);
  Ending ending;
  ending.results.push_back(output);
  ending.keep = {source, target};
  ending.finish = copying_back(output, target);
  const Manner manner{c10d::OpType::ALLTOALL_BASE, "ciuic:all_to_all", options.asyncOp,
                      options.timeout, std::span(&input, 1)};
  if (output_rows.empty() && input_rows.empty()) {
    return launch(Call::all_to_all(payload_of(source), payload_of(target)), manner,
                  std::move(ending));
  }
  return launch(Call::all_to_all_v(payload_of(source), std::move(input_counts), payload_of(target),
                                   std::move(output_counts)),
                manner, std::move(ending));
}

}  // namespace ciuic::torch_backend
