// SPDX-License-Identifier: Apache-2.0
// pieces_test.cc: every element is copied out once and in once, and all ranks cut alike.

#include "backend/staged/pieces.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace ciuic::backend {
namespace {

constexpr int kSize = 3;
constexpr size_t kSlot = 256;

ConstBuffer in(int64_t count) { return {nullptr, count, DataType::kFloat32, {}}; }
MutableBuffer out(int64_t count) { return {nullptr, count, DataType::kFloat32, {}}; }

// The bytes that the copies reach on the device, each once.
std::set<size_t> reached(const std::vector<Piece>& pieces, std::vector<Copy> Piece::* side) {
  std::set<size_t> bytes;
  for (const Piece& piece : pieces) {
    for (const Copy& copy : piece.*side) {
      EXPECT_LE(copy.slot_offset + copy.bytes, piece.bytes);
      for (size_t i = 0; i < copy.bytes; ++i) {
        EXPECT_TRUE(bytes.insert(copy.device_offset + i).second) << "copied twice";
      }
    }
  }
  return bytes;
}

std::vector<Call> calls_of(int rank, int64_t count, const std::vector<int64_t>& counts) {
  const int64_t sum = counts[0] + counts[1] + counts[2];
  const int64_t own = counts[static_cast<size_t>(rank)];
  return {Call::all_reduce(in(count), out(count), ReduceOp::kSum),
          Call::reduce(in(count), out(count), ReduceOp::kSum, 1),
          Call::broadcast(out(count), 1),
          Call::all_gather(in(count), out(kSize * count)),
          Call::all_gather_v(in(own), out(sum), counts),
          Call::reduce_scatter(in(kSize * count), out(count), ReduceOp::kSum),
          Call::reduce_scatter_v(in(sum), counts, out(own), ReduceOp::kSum),
          Call::all_to_all(in(kSize * count), out(kSize * count)),
          Call::all_to_all_v(in(sum), counts, out(sum), counts),
          Call::gather(in(count), out(kSize * count), 1),
          Call::gather_v(in(own), out(sum), counts, 1),
          Call::scatter(in(kSize * count), out(count), 1),
          Call::scatter_v(in(sum), counts, out(own), 1),
          Call::send(in(count), 1),
          Call::recv(out(count), 1)};
}

bool gives(const Call& call, int rank) {
  const bool is_root_alone =
      call.operation == Operation::kBroadcast || call.operation == Operation::kScatter;
  return call.operation != Operation::kRecv && (!is_root_alone || rank == call.root);
}

bool gets(const Call& call, int rank) {
  if (call.operation == Operation::kBroadcast) return rank != call.root;
  const bool is_root_alone =
      call.operation == Operation::kReduce || call.operation == Operation::kGather;
  return call.operation != Operation::kSend && (!is_root_alone || rank == call.root);
}

TEST(PiecesTest, CopyEveryElementOnce) {
  for (const int64_t count : {0, 1, 5, 64, 257}) {
    for (int rank = 0; rank < kSize; ++rank) {
      for (const Call& call : calls_of(rank, count, {count, 0, 3 * count})) {
        SCOPED_TRACE(std::string(name_of(call.operation)) + " of " + std::to_string(count));
        const std::vector<Piece> pieces = cut(call, rank, kSize, kSlot);
        ASSERT_FALSE(pieces.empty());
        EXPECT_EQ(reached(pieces, &Piece::out).size(), gives(call, rank) ? call.input.bytes() : 0);
        EXPECT_EQ(reached(pieces, &Piece::in).size(), gets(call, rank) ? call.output.bytes() : 0);
      }
    }
  }
}

TEST(PiecesTest, AreAsManyOnEveryRank) {
  for (const int64_t count : {0, 1, 5, 64, 257}) {
    const std::vector<int64_t> counts{count, 0, 3 * count};
    const std::vector<Call> first = calls_of(0, count, counts);
    for (int rank = 1; rank < kSize; ++rank) {
      const std::vector<Call> calls = calls_of(rank, count, counts);
      for (size_t i = 0; i < calls.size(); ++i) {
        EXPECT_EQ(cut(calls[i], rank, kSize, kSlot).size(), cut(first[i], 0, kSize, kSlot).size())
            << name_of(calls[i].operation) << " of " << count;
      }
    }
  }
}

TEST(PiecesTest, FitIntoTheirSlot) {
  for (int rank = 0; rank < kSize; ++rank) {
    for (const Call& call : calls_of(rank, 100, {100, 0, 300})) {
      if (call.operation >= Operation::kSend) continue;
      const bool is_whole = call.uneven && call.operation != Operation::kAllGather &&
                            call.operation != Operation::kReduceScatter;
      for (const Piece& piece : cut(call, rank, kSize, kSlot)) {
        // Between the two sides may be less than a cache line.
        EXPECT_TRUE(is_whole || piece.bytes <= kSlot + 64) << name_of(call.operation);
      }
    }
  }
}

TEST(PiecesTest, HaveTheCountsOfTheirBlocks) {
  const std::vector<Piece> pieces =
      cut(Call::all_gather_v(in(40), out(60), {0, 40, 20}), 1, kSize, kSlot);
  ASSERT_EQ(pieces.size(), 3U);  // of 16 elements a block
  EXPECT_EQ(pieces[0].call.output_counts, (std::vector<int64_t>{0, 16, 16}));
  EXPECT_EQ(pieces[1].call.output_counts, (std::vector<int64_t>{0, 16, 4}));
  EXPECT_EQ(pieces[2].call.output_counts, (std::vector<int64_t>{0, 8, 0}));
  EXPECT_EQ(pieces[2].call.input.count, 8);
  EXPECT_EQ(pieces[2].call.output.count, 8);
}

}  // namespace
}  // namespace ciuic::backend
