// SPDX-License-Identifier: Apache-2.0
// reductions.cc: the operations that reduce.
//
// AVG of floats is scaled before it is added up, as the native backend does it, so that a sum does
// not overflow where the average does not: in the output where there is one, else in staging, piece
// by piece where buffer_size wants it. A reduce_scatter that is too large for one call of MPI, or
// for staging, is a reduce to each rank in turn.

#include <algorithm>
#include <cstring>

#include "backend/mpi/operation.h"
#include "kernels/reduce.h"

namespace ciuic::backend {

namespace {

// Elements that go to one root in one call.
struct Piece {
  int root = 0;
  int64_t begin = 0;         // in the input
  int64_t output_begin = 0;  // in the root's output
  int64_t count = 0;
};

class Reduction {
 public:
  Reduction(const MpiCommunicator& communicator, MpiOperation* operation)
      : communicator_(communicator),
        mpi_(communicator.library->functions),
        constants_(communicator.library->constants),
        operation_(*operation),
        call_(operation->call),
        dtype_(operation->request.dtype),
        op_(operation->request.op),
        element_(size_of(dtype_)),
        input_(static_cast<const std::byte*>(operation->call.input.data)),
        output_(static_cast<std::byte*>(operation->call.output.data)) {}

  int issue();
  void conclude();

 private:
  int all_reduce();
  int reduce_scatter();
  int reduce_in_pieces();
  int reduce(const Piece& piece);
  bool next_piece(Piece* piece) const;
  bool is_in_pieces() const;
  int64_t piece_limit() const;

  bool scatters() const { return call_.operation == Operation::kReduceScatter; }

  // Of a rank's block in a reduce_scatter, else of the whole.
  int64_t block_count(int rank) const;
  int64_t block_begin(int rank) const;

  // Integers are divided at the end.
  bool scales() const {
    return op_ == ReduceOp::kAvg && !(DataType::kInt32 <= dtype_ && dtype_ <= DataType::kBool);
  }
  void scale(const std::byte* from, std::byte* to, int64_t count) const;
  std::byte* stage(size_t bytes);
  size_t bytes(int64_t count) const { return static_cast<size_t>(count) * element_; }

  const MpiCommunicator& communicator_;
  const mpi::Functions& mpi_;
  const mpi::Constants& constants_;
  MpiOperation& operation_;
  const Call& call_;
  const DataType dtype_;
  const ReduceOp op_;
  const size_t element_;
  const std::byte* input_;
  std::byte* output_;
  MpiReduction reduction_;
};

void Reduction::scale(const std::byte* from, std::byte* to, int64_t count) const {
  const kernels::Operand operand{.data = from, .raw = true};
  kernels::reduce({.dtype = dtype_, .op = op_, .ranks = communicator_.size}, {&operand, 1},
                  /*final=*/false, to, count);
}

std::byte* Reduction::stage(size_t bytes) {
  if (operation_.staging_bytes < bytes) {
    operation_.staging = std::make_unique_for_overwrite<std::byte[]>(bytes);
    operation_.staging_bytes = bytes;
  }
  return operation_.staging.get();
}

int64_t Reduction::block_count(int rank) const {
  return scatters() && call_.uneven ? call_.input_counts[static_cast<size_t>(rank)]
                                    : operation_.request.count;
}

int64_t Reduction::block_begin(int rank) const {
  if (!scatters()) return 0;
  if (!call_.uneven) return rank * operation_.request.count;
  int64_t begin = 0;
  for (int each = 0; each < rank; ++each) begin += block_count(each);
  return begin;
}

// Alike on all ranks, as all that decides is.
bool Reduction::is_in_pieces() const {
  if (!scatters()) return true;
  int64_t most = 0;
  for (int rank = 0; rank < communicator_.size; ++rank) most = std::max(most, block_count(rank));
  const int64_t all = call_.input.count;
  return all > constants_.most_count || bytes(most) > communicator_.buffer_size ||
         (scales() && bytes(all) > communicator_.buffer_size);
}

int64_t Reduction::piece_limit() const {
  if (!scales()) return constants_.most_count;
  const auto fitting = static_cast<int64_t>(communicator_.buffer_size / element_);
  return std::clamp<int64_t>(fitting, 1, constants_.most_count);
}

int Reduction::all_reduce() {
  operation_.is_issued = true;
  const int64_t count = operation_.request.count;
  const std::byte* input = input_;
  if (scales()) {
    scale(input_, output_, count);
    input = output_;
  }
  int64_t begin = 0;
  do {
    const int64_t part = std::min<int64_t>(count - begin, constants_.most_count);
    const void* from = input == output_ ? constants_.in_place : input + bytes(begin);
    const int code = operation_.made(
        mpi_.iallreduce(from, output_ + bytes(begin), static_cast<int>(part), reduction_.type,
                        reduction_.op, communicator_.handle, operation_.next_request()));
    if (code != mpi::kSuccess) return code;
    begin += part;
  } while (begin < count);
  return mpi::kSuccess;
}

// In place, the output is a part of the input, which MPI forbids: the result comes to staging.
int Reduction::reduce_scatter() {
  operation_.is_issued = true;
  const int64_t all = call_.input.count;
  const int64_t own = block_count(communicator_.rank);
  const std::byte* input = input_;
  std::byte* output = output_;
  if (scales()) {
    scale(input_, stage(bytes(all)), all);
    input = operation_.staging.get();
  } else if (output_ == input_ + bytes(block_begin(communicator_.rank))) {
    output = stage(bytes(own));
  }
  if (!call_.uneven) {
    return operation_.made(
        mpi_.ireduce_scatter_block(input, output, static_cast<int>(own), reduction_.type,
                                   reduction_.op, communicator_.handle, operation_.next_request()));
  }
  for (const int64_t count : call_.input_counts) {
    operation_.numbers.push_back(static_cast<int>(count));
  }
  return operation_.made(mpi_.ireduce_scatter(input, output, operation_.numbers.data(),
                                              reduction_.type, reduction_.op, communicator_.handle,
                                              operation_.next_request()));
}

// The one that comes after those that were issued; false: there are no more.
bool Reduction::next_piece(Piece* piece) const {
  auto number = static_cast<int64_t>(operation_.pieces);
  const int64_t limit = piece_limit();
  const int first = scatters() ? 0 : call_.root;
  const int last = scatters() ? communicator_.size - 1 : first;
  for (int root = first; root <= last; ++root) {
    const int64_t count = block_count(root);
    int64_t pieces = (count + limit - 1) / limit;
    if (!scatters()) pieces = std::max<int64_t>(1, pieces);  // a reduce of nothing is a call, too
    if (number >= pieces) {
      number -= pieces;
      continue;
    }
    const int64_t begin = number * limit;
    *piece = {.root = root,
              .begin = block_begin(root) + begin,
              .output_begin = begin,
              .count = std::min(limit, count - begin)};
    return true;
  }
  return false;
}

int Reduction::reduce(const Piece& piece) {
  const bool is_root = communicator_.rank == piece.root;
  const std::byte* input = input_ + bytes(piece.begin);
  std::byte* output = is_root ? output_ + bytes(piece.output_begin) : nullptr;
  if (scales()) {
    std::byte* scaled = is_root ? output : stage(bytes(piece.count));
    scale(input, scaled, piece.count);
    input = scaled;
  }
  const void* from = is_root && input == output ? constants_.in_place : input;
  return operation_.made(mpi_.ireduce(from, output, static_cast<int>(piece.count), reduction_.type,
                                      reduction_.op, piece.root, communicator_.handle,
                                      operation_.next_request()));
}

// All at once, save that staging serves one piece at a time.
int Reduction::reduce_in_pieces() {
  Piece piece;
  while (next_piece(&piece)) {
    const int code = reduce(piece);
    if (code != mpi::kSuccess) return code;
    ++operation_.pieces;
    if (scales()) break;
  }
  operation_.is_issued = !next_piece(&piece);
  return mpi::kSuccess;
}

int Reduction::issue() {
  const int code = communicator_.types->reduction(dtype_, op_, &reduction_);
  if (code != mpi::kSuccess) return code;
  if (call_.operation == Operation::kAllReduce) return all_reduce();
  return is_in_pieces() ? reduce_in_pieces() : reduce_scatter();
}

void Reduction::conclude() {
  if (call_.operation == Operation::kReduce && communicator_.rank != call_.root) return;
  const int64_t count = block_count(communicator_.rank);
  const bool is_staged = operation_.staging != nullptr && !scales();
  if (is_staged && count > 0) std::memcpy(output_, operation_.staging.get(), bytes(count));
  if (op_ != ReduceOp::kAvg) return;
  const kernels::Operand operand{.data = output_};
  kernels::reduce({.dtype = dtype_, .op = op_, .ranks = communicator_.size}, {&operand, 1},
                  /*final=*/true, output_, count);
}

}  // namespace

int issue_reduction(const MpiCommunicator& communicator, MpiOperation* operation) {
  return Reduction(communicator, operation).issue();
}

int issue(const MpiCommunicator& communicator, MpiOperation* operation) {
  return operation->request.reduces ? issue_reduction(communicator, operation)
                                    : issue_move(communicator, operation);
}

void conclude(const MpiCommunicator& communicator, MpiOperation* operation) {
  if (operation->request.reduces) Reduction(communicator, operation).conclude();
}

}  // namespace ciuic::backend
