// SPDX-License-Identifier: Apache-2.0
// types.cc: types for large blocks, and a reduction function for each dtype and op.

#include "backend/mpi/types.h"

#include <algorithm>
#include <utility>

#include "kernels/reduce.h"

namespace ciuic::backend {

namespace {

using Table = std::array<std::array<mpi::ReduceFunction*, kReduceOps>, kDataTypes>;

// MPI tells such a function nothing but the type, so there is one for each dtype and op.
template <size_t kDtype, size_t kOp>
void reduce_into(void* in, void* inout, int* count, mpi::Handle* /*type*/) {
  const kernels::Operand operands[] = {{.data = static_cast<const std::byte*>(in)},
                                       {.data = static_cast<const std::byte*>(inout)}};
  kernels::reduce({.dtype = static_cast<DataType>(kDtype), .op = static_cast<ReduceOp>(kOp)},
                  operands, /*final=*/false, static_cast<std::byte*>(inout), *count);
}

template <size_t... kPairs>
constexpr Table make_table(std::index_sequence<kPairs...> /*pairs*/) {
  Table table{};
  ((table[kPairs / kReduceOps][kPairs % kReduceOps] =
        reduce_into<kPairs / kReduceOps, kPairs % kReduceOps>),
   ...);
  return table;
}

constexpr Table kFunctions =
    make_table(std::make_index_sequence<size_t{kDataTypes} * kReduceOps>());

// Whether MPI's own op does what ours does.
bool is_alike(DataType dtype, ReduceOp op) {
  // A NaN wins, and -0 is less than 0, in our minimum and maximum; MPI's says nothing of either.
  if (dtype == DataType::kFloat32 || dtype == DataType::kFloat64) {
    return op == ReduceOp::kSum || op == ReduceOp::kProduct;
  }
  // Open MPI's sums of integers of 8 and 16 bits saturate, ours wrap.
  return size_of(dtype) >= sizeof(int32_t);
}

}  // namespace

bool goes_straight(const mpi::Library& library, const Call& call) {
  if (!library.is_cuda_aware) return false;
  switch (call.operation) {
    case Operation::kReduceScatter: return false;  // it is staged where it is uneven or in place
    case Operation::kAllReduce:
    case Operation::kReduce: {
      const auto dtype = static_cast<size_t>(call.input.dtype);
      const auto op = static_cast<size_t>(call.op);
      return call.op != ReduceOp::kAvg && is_alike(call.input.dtype, call.op) &&
             library.constants.types[dtype] != 0 && library.constants.ops[op] != 0;
    }
    default: return true;
  }
}

int MpiTypes::block(int64_t begin, int64_t bytes, std::vector<mpi::Handle>* made, MpiExtent* extent,
                    int* displacement) const {
  const int64_t most = library_.constants.most_count;
  *extent = {0, library_.constants.byte};
  *displacement = 0;
  if (bytes == 0) return mpi::kSuccess;
  if (begin + bytes <= most) {
    extent->count = static_cast<int>(bytes);
    *displacement = static_cast<int>(begin);
    return mpi::kSuccess;
  }
  std::vector<int> lengths;
  std::vector<intptr_t> begins;
  for (int64_t done = 0; done < bytes; done += lengths.back()) {
    begins.push_back(static_cast<intptr_t>(begin + done));
    lengths.push_back(static_cast<int>(std::min(most, bytes - done)));
  }
  const mpi::Functions& call = library_.functions;
  mpi::Handle type = 0;
  int code = call.type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(),
                                       begins.data(), library_.constants.byte, &type);
  if (code != mpi::kSuccess) return code;
  code = call.type_commit(&type);
  made->push_back(type);
  *extent = {1, type};
  return code;
}

int MpiTypes::reduction(DataType dtype, ReduceOp op, MpiReduction* reduction) {
  if (op == ReduceOp::kAvg) op = ReduceOp::kSum;
  const mpi::Constants& constants = library_.constants;
  const auto dtype_number = static_cast<size_t>(dtype);
  const auto op_number = static_cast<size_t>(op);
  const bool has_both = constants.types[dtype_number] != 0 && constants.ops[op_number] != 0;
  if (has_both && is_alike(dtype, op)) {
    *reduction = {constants.types[dtype_number], constants.ops[op_number]};
    return mpi::kSuccess;
  }
  const size_t bytes = size_of(dtype);
  mpi::Handle& element = elements_[bytes];
  const mpi::Functions& call = library_.functions;
  if (element == 0) {
    mpi::Handle made = 0;
    int code = call.type_contiguous(static_cast<int>(bytes), constants.byte, &made);
    if (code == mpi::kSuccess) code = call.type_commit(&made);
    if (code != mpi::kSuccess) return code;
    element = made;
  }
  mpi::Handle& own = ops_[dtype_number][op_number];
  if (own == 0) {
    const int code = call.op_create(kFunctions[dtype_number][op_number], /*commutes=*/1, &own);
    if (code != mpi::kSuccess) return code;
  }
  *reduction = {element, own};
  return mpi::kSuccess;
}

}  // namespace ciuic::backend
