// SPDX-License-Identifier: Apache-2.0
// tensors.h: from torch's tensors to the core's buffers.
//
// The core takes contiguous elements of one dtype. A tensor that is none such (strides, a lazy
// conjugate) is copied before, and what the operation gave is copied back after: the peers' strides
// are not known, so the memory of a strided tensor is never sent as it lies.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ciuic/buffer.h"
#include "ciuic/dtype.h"

namespace ciuic::torch_backend {

// What the core calls a dtype of torch's; none for those that it knows only as bytes.
std::optional<DataType> data_type_of(at::ScalarType type);

// Refuses (errors.h) what is neither on the CPU nor on a GPU of CUDA's, or not dense.
void check_dense(const at::Tensor& tensor, const char* operation);

// The one tensor of a list, checked.
const at::Tensor& single(const std::vector<at::Tensor>& tensors, const char* operation);

// Whether the core can use its memory as it lies.
inline bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// The tensor itself where it is plain, else a copy that is.
at::Tensor plain(const at::Tensor& tensor);

// The tensor itself where it is plain, else new memory of its size, to be copied back.
at::Tensor plain_output(const at::Tensor& tensor);

// What writes to a tensor of the caller's what an operation left in the plain one that stood in for
// it; for any thread, unseen by autograd. Empty where it is the tensor itself.
std::function<void()> copying_back(const at::Tensor& tensor, const at::Tensor& stand_in);
std::function<void()> copying_back(const std::vector<at::Tensor>& tensors,
                                   const std::vector<at::Tensor>& stand_ins);

// The elements of a plain tensor, for operations that calculate: refuses a dtype that the core only
// knows as bytes.
MutableBuffer elements_of(const at::Tensor& tensor, const char* operation);

// The elements, for operations that only move them; of a dtype that the core does not know, bytes.
MutableBuffer payload_of(const at::Tensor& tensor);
// How many of the buffer's units an element is: 1, or its bytes.
int64_t units_of(at::ScalarType type);

// Several tensors one after another in one buffer: the memory that they lie in already, or memory
// of its own.
struct Row {
  MutableBuffer buffer;         // of all
  std::vector<int64_t> counts;  // of each, in the buffer's units
  at::Tensor own;               // the memory, where it is not the tensors'

  bool is_even() const;
};

// The tensors of an input, gathered; `own` is filled.
Row row_of_inputs(const std::vector<at::Tensor>& tensors, const char* operation);

// Room for outputs; `own`, where there is any, is copied back in the end.
Row row_of_outputs(const std::vector<at::Tensor>& tensors, const char* operation);

// Writes a row of outputs to the tensors.
void copy_row_back(const std::vector<at::Tensor>& tensors, const at::Tensor& own);

// What does so; empty where the row has no memory of its own.
std::function<void()> copying_row_back(const std::vector<at::Tensor>& tensors, const Row& row);

}  // namespace ciuic::torch_backend
