// SPDX-License-Identifier: Apache-2.0
// pieces.cc: cuts.

#include "backend/staged/pieces.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "plan/registry.h"

namespace ciuic::backend {

namespace {

using Counts = std::vector<int64_t>;

// Of one side of a call: elements of each block.
struct Side {
  Counts blocks;
  DataType dtype = DataType::kUInt8;

  bool exists() const { return !blocks.empty(); }
  int64_t most() const { return *std::max_element(blocks.begin(), blocks.end()); }
};

Side even(int blocks, int64_t count, DataType dtype) {
  return {Counts(static_cast<size_t>(blocks), blocks > 0 ? count / blocks : 0), dtype};
}

class Cutting {
 public:
  Cutting(const Call& call, int rank, int size, size_t slot_bytes)
      : call_(call), rank_(rank), size_(size), slot_bytes_(slot_bytes) {
    find_sides();
  }

  std::vector<Piece> run();

 private:
  void find_sides();
  bool is_cut() const;
  int64_t most_of_piece() const;
  Piece piece(int64_t begin, int64_t most) const;
  size_t add_side(const Side& side, int64_t begin, int64_t most, size_t at, Counts* counts,
                  std::vector<Copy>* copies) const;

  const Call& call_;
  const int rank_;
  const int size_;
  const size_t slot_bytes_;
  Side input_;   // what this rank gives
  Side output_;  // what it gets
};

void Cutting::find_sides() {
  const DataType in = call_.input.dtype;
  const DataType out = call_.output.dtype;
  if (call_.operation == Operation::kSend) {
    input_ = even(1, call_.input.count, in);
    return;
  }
  if (call_.operation == Operation::kRecv) {
    output_ = even(1, call_.output.count, out);
    return;
  }
  if (call_.operation == Operation::kBroadcast) {
    output_ = even(1, call_.output.count, out);
    if (rank_ == call_.root) input_ = output_;
    return;
  }
  const plan::Shape shape = plan::shape_of(call_.operation, size_, rank_, call_.root);
  input_ = even(shape.input, call_.input.count, in);
  output_ = even(shape.output, call_.output.count, out);
  if (!call_.input_counts.empty() && shape.input > 0) input_.blocks = call_.input_counts;
  if (!call_.output_counts.empty() && shape.output > 0) output_.blocks = call_.output_counts;
}

bool Cutting::is_cut() const {
  switch (call_.operation) {
    case Operation::kSend:
    case Operation::kRecv:
    case Operation::kBarrier: return false;
    case Operation::kAllToAll:
    case Operation::kGather:
    case Operation::kScatter: return !call_.uneven;
    default: return true;
  }
}

// Elements of each block that one piece does, by what the rank with the largest share needs.
int64_t Cutting::most_of_piece() const {
  int64_t blocks = 0;
  switch (call_.operation) {
    case Operation::kAllReduce:
    case Operation::kBroadcast: blocks = 1; break;
    case Operation::kReduce: blocks = 2; break;
    case Operation::kAllToAll: blocks = 2 * size_; break;
    default: blocks = size_ + 1; break;
  }
  const Side& known = input_.exists() ? input_ : output_;
  const auto bytes = static_cast<int64_t>(slot_bytes_ / size_of(known.dtype));
  return std::max<int64_t>(1, bytes / blocks);
}

// Appends what one side of a piece has in its slot from `at` on; returns where it ends.
size_t Cutting::add_side(const Side& side, int64_t begin, int64_t most, size_t at, Counts* counts,
                         std::vector<Copy>* copies) const {
  const size_t element = size_of(side.dtype);
  int64_t before = 0;
  for (const int64_t block : side.blocks) {
    const int64_t count = std::clamp<int64_t>(block - begin, 0, most);
    const size_t bytes = static_cast<size_t>(count) * element;
    if (bytes > 0) {
      copies->push_back({static_cast<size_t>(before + begin) * element, at, bytes});
    }
    counts->push_back(count);
    before += block;
    at += bytes;
  }
  return at;
}

int64_t sum_of(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

Piece Cutting::piece(int64_t begin, int64_t most) const {
  constexpr size_t kAlignment = 64;
  Piece piece;
  Call& call = piece.call;
  call = call_;
  call.input.data = nullptr;
  call.output.data = nullptr;
  call.input.device = call.output.device = {};
  Counts inputs;
  Counts outputs;
  piece.has_input = input_.exists();
  piece.has_output = output_.exists();
  if (input_.exists()) {
    piece.bytes = add_side(input_, begin, most, 0, &inputs, &piece.out);
    call.input.count = sum_of(inputs);
  }
  if (output_.exists()) {
    // An all_reduce or broadcast is in place; all others have their output apart.
    const bool in_place = call.operation == Operation::kAllReduce ||
                          (call.operation == Operation::kBroadcast && input_.exists());
    const size_t at = in_place ? 0 : (piece.bytes + kAlignment - 1) / kAlignment * kAlignment;
    piece.output_offset = at;
    const size_t end = add_side(output_, begin, most, at, &outputs, &piece.in);
    piece.bytes = std::max(piece.bytes, end);
    call.output.count = sum_of(outputs);
  }
  if (call.operation == Operation::kBroadcast) {
    call.input.count = call.output.count;
    if (rank_ == call.root) piece.in.clear();
  }
  if (input_.exists() && !call.input_counts.empty()) call.input_counts = std::move(inputs);
  if (output_.exists() && !call.output_counts.empty()) call.output_counts = std::move(outputs);
  return piece;
}

std::vector<Piece> Cutting::run() {
  std::vector<Piece> pieces;
  const int64_t whole =
      std::max(input_.exists() ? input_.most() : 0, output_.exists() ? output_.most() : 0);
  const int64_t most = is_cut() ? most_of_piece() : std::max<int64_t>(1, whole);
  int64_t begin = 0;
  do {
    pieces.push_back(piece(begin, most));
    begin += most;
  } while (begin < whole);
  return pieces;
}

}  // namespace

std::vector<Piece> cut(const Call& call, int rank, int size, size_t slot_bytes) {
  return Cutting(call, rank, size, slot_bytes).run();
}

}  // namespace ciuic::backend
