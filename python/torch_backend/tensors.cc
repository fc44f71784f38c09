// SPDX-License-Identifier: Apache-2.0
// tensors.cc: checks, copies and rows of tensors.

#include "tensors.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "errors.h"
#include "gpu.h"

namespace ciuic::torch_backend {

std::optional<DataType> data_type_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return DataType::kFloat32;
    case at::kDouble: return DataType::kFloat64;
    case at::kHalf: return DataType::kFloat16;
    case at::kBFloat16: return DataType::kBFloat16;
    case at::kInt: return DataType::kInt32;
    case at::kLong: return DataType::kInt64;
    case at::kByte: return DataType::kUInt8;
    case at::kChar: return DataType::kInt8;
    case at::kShort: return DataType::kInt16;
    case at::ScalarType::UInt16: return DataType::kUInt16;
    case at::ScalarType::UInt32: return DataType::kUInt32;
    case at::ScalarType::UInt64: return DataType::kUInt64;
    case at::kBool: return DataType::kBool;
    case at::kComplexFloat: return DataType::kComplex64;
    case at::kComplexDouble: return DataType::kComplex128;
    case at::ScalarType::Float8_e4m3fn: return DataType::kFloat8E4M3FN;
    case at::ScalarType::Float8_e5m2: return DataType::kFloat8E5M2;
    default: return std::nullopt;
  }
}

template <typename Value>
static std::string text_of(const Value& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

void check_dense(const at::Tensor& tensor, const char* operation) {
  if (!tensor.defined()) refuse(operation, "a tensor is undefined");
  if (!tensor.is_cpu() && !tensor.is_cuda()) {
    refuse(operation,
           "the tensor is on " + text_of(tensor.device()) +
               ", and this backend carries tensors on the CPU and on CUDA's GPUs; give those of "
               "another device a backend of their own, as in "
               "init_process_group('cpu:ciuic,xpu:xccl')");
  }
  if (tensor.layout() != at::kStrided) {
    refuse(operation, "the tensor's layout is " + text_of(tensor.layout()) +
                          "; only all_reduce takes sparse tensors");
  }
}

const at::Tensor& single(const std::vector<at::Tensor>& tensors, const char* operation) {
  if (tensors.size() != 1) {
    refuse(operation, "it takes one tensor, not " + std::to_string(tensors.size()));
  }
  check_dense(tensors[0], operation);
  return tensors[0];
}

at::Tensor plain(const at::Tensor& tensor) {
  if (is_plain(tensor)) return tensor;
  const at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor copy = at::empty(tensor.sizes(), tensor.options());
  copy.copy_(tensor);
  return copy;
}

at::Tensor plain_output(const at::Tensor& tensor) {
  if (is_plain(tensor)) return tensor;
  const at::AutoDispatchBelowADInplaceOrView guard;
  return at::empty(tensor.sizes(), tensor.options());
}

static void copy_back(const at::Tensor& tensor, const at::Tensor& stand_in) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  tensor.copy_(stand_in);
}

std::function<void()> copying_back(const at::Tensor& tensor, const at::Tensor& stand_in) {
  if (stand_in.is_same(tensor)) return {};
  return [tensor, stand_in] { copy_back(tensor, stand_in); };
}

std::function<void()> copying_back(const std::vector<at::Tensor>& tensors,
                                   const std::vector<at::Tensor>& stand_ins) {
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!stand_ins[i].is_same(tensors[i])) copies.emplace_back(tensors[i], stand_ins[i]);
  }
  if (copies.empty()) return {};
  return [copies = std::move(copies)] {
    for (const auto& [tensor, stand_in] : copies) copy_back(tensor, stand_in);
  };
}

MutableBuffer elements_of(const at::Tensor& tensor, const char* operation) {
  const std::optional<DataType> type = data_type_of(tensor.scalar_type());
  if (!type) {
    refuse(operation, "elements of " + text_of(tensor.scalar_type()) + " cannot be reduced");
  }
  return {tensor.mutable_data_ptr(), tensor.numel(), *type, place_of(tensor)};
}

int64_t units_of(at::ScalarType type) {
  return data_type_of(type) ? 1 : static_cast<int64_t>(c10::elementSize(type));
}

MutableBuffer payload_of(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return {tensor.mutable_data_ptr(), tensor.numel() * units_of(type),
          data_type_of(type).value_or(DataType::kUInt8), place_of(tensor)};
}

bool Row::is_even() const {
  return std::all_of(counts.begin(), counts.end(),
                     [&](int64_t count) { return count == counts[0]; });
}

static void check_alike(const std::vector<at::Tensor>& tensors, const char* operation) {
  for (const at::Tensor& tensor : tensors) {
    check_dense(tensor, operation);
    if (tensor.scalar_type() != tensors[0].scalar_type()) {
      refuse(operation, "invalid tensor type: the list has tensors of " +
                            text_of(tensors[0].scalar_type()) + " and of " +
                            text_of(tensor.scalar_type()));
    }
    if (tensor.device() != tensors[0].device()) {
      refuse(operation, "tensors on " + text_of(tensors[0].device()) + " and on " +
                            text_of(tensor.device()) + "; all of one call must be on one device");
    }
  }
}

// Whether each begins where the one before it ends.
static bool lie_in_a_row(const std::vector<at::Tensor>& tensors) {
  const char* end = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (!is_plain(tensor)) return false;
    if (tensor.numel() == 0) continue;
    const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
    if (end != nullptr && begin != end) return false;
    end = begin + tensor.nbytes();
  }
  return true;
}

static Row row_of(const std::vector<at::Tensor>& tensors, const char* operation) {
  check_alike(tensors, operation);
  const at::ScalarType type = tensors[0].scalar_type();
  const int64_t units = units_of(type);
  Row row;
  row.counts.reserve(tensors.size());
  int64_t elements = 0;
  for (const at::Tensor& tensor : tensors) {
    elements += tensor.numel();
    row.counts.push_back(tensor.numel() * units);
  }
  row.buffer.count = elements * units;
  row.buffer.dtype = data_type_of(type).value_or(DataType::kUInt8);
  row.buffer.device = place_of(tensors[0]);
  if (lie_in_a_row(tensors)) {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.numel() == 0) continue;
      row.buffer.data = tensor.mutable_data_ptr();
      break;
    }
  } else {
    const at::AutoDispatchBelowADInplaceOrView guard;
    row.own = at::empty({elements}, tensors[0].options().memory_format(std::nullopt));
    row.buffer.data = row.own.mutable_data_ptr();
  }
  return row;
}

Row row_of_inputs(const std::vector<at::Tensor>& tensors, const char* operation) {
  Row row = row_of(tensors, operation);
  if (!row.own.defined()) return row;
  const at::AutoDispatchBelowADInplaceOrView guard;
  int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    row.own.narrow(0, begin, tensor.numel()).view(tensor.sizes()).copy_(tensor);
    begin += tensor.numel();
  }
  return row;
}

Row row_of_outputs(const std::vector<at::Tensor>& tensors, const char* operation) {
  return row_of(tensors, operation);
}

void copy_row_back(const std::vector<at::Tensor>& tensors, const at::Tensor& own) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.copy_(own.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

std::function<void()> copying_row_back(const std::vector<at::Tensor>& tensors, const Row& row) {
  if (!row.own.defined()) return {};
  return [tensors, own = row.own] { copy_row_back(tensors, own); };
}

}  // namespace ciuic::torch_backend
