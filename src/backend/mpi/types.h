// SPDX-License-Identifier: Apache-2.0
// types.h: how Ciuic's elements, blocks and reductions are said in MPI.
//
// What is moved is bytes. A block of more bytes than a call can count is one element of a type made
// for it. What is reduced is MPI's own type and op where they mean the same as ours (integers of 32
// and 64 bits; sums and products of float32 and float64), else elements of bytes and a function
// over kernels/reduce.h: 16-bit and 8-bit floats are added in float32 and rounded once a hop.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ciuic/call.h"
#include "ciuic/dtype.h"
#include "drivers/mpi/mpi.h"

namespace ciuic::backend {

struct MpiExtent {
  int count = 0;
  mpi::Handle type = 0;
};

struct MpiReduction {
  mpi::Handle type = 0;
  mpi::Handle op = 0;
};

// Made types and ops live as long as the process. One thread at a time. Functions return MPI's
// code.
class MpiTypes {
 public:
  // `library` outlives it.
  explicit MpiTypes(const mpi::Library* library) : library_(*library) {}

  // As many bytes, from `begin` bytes after the buffer on that is passed, displaced by
  // `displacement`. A type that is made for them is appended to `made`, to be freed when it is no
  // longer used.
  int block(int64_t begin, int64_t bytes, std::vector<mpi::Handle>* made, MpiExtent* extent,
            int* displacement) const;

  // AVG is a sum here.
  int reduction(DataType dtype, ReduceOp op, MpiReduction* reduction);

 private:
  const mpi::Library& library_;
  std::array<mpi::Handle, 17> elements_{};  // by bytes; 0: not made yet
  std::array<std::array<mpi::Handle, kReduceOps>, kDataTypes> ops_{};
};

// Whether the call, of a GPU's memory, may go to MPI as it is: the library says that it takes such
// memory, and nothing is done to it here, nor by our functions.
bool goes_straight(const mpi::Library& library, const Call& call);

}  // namespace ciuic::backend
