// SPDX-License-Identifier: Apache-2.0
// plan.h: what one rank does in one collective operation, as data.
//
// A plan is a list of steps over blocks of three spaces (the caller's input and output, and
// scratch). It knows neither bytes nor time. The engine binds blocks to bytes and runs the steps,
// cut into chunks; the prover runs them symbolically; the simulator runs them with faults.
//
// Meaning. Steps run concurrently, save for two orders that finish() works out:
//   data     a step that touches a block which an earlier step of the list touches, one of them
//            writing, comes after it. Where both touch the very same range, chunk k waits for chunk
//            k alone, so that steps are pipelined; where the ranges differ, for the whole step.
//   streams  messages between two ranks on one lane are sent, and received, in the order of the
//            list. The k-th send to a peer meets the peer's k-th receive from here. Steps of
//            different lanes or peers do not wait for each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/layout.h"

namespace ciuic::plan {

enum class Space : uint8_t { kInput = 0, kOutput = 1, kScratch = 2 };
inline constexpr int kSpaces = 3;

// Blocks [first, first + count) of a space, which lie one after another. None is legal: a message
// without bytes, which still says "I am here".
struct BlockRange {
  Space space = Space::kOutput;
  int first = 0;
  int count = 0;
  bool operator==(const BlockRange&) const = default;

  // Blocks [from, from + number) of these.
  BlockRange part(int from, int number) const { return {space, first + from, number}; }
};

inline BlockRange input(int block) { return {Space::kInput, block, 1}; }
inline BlockRange output(int block) { return {Space::kOutput, block, 1}; }
inline BlockRange scratch(int block) { return {Space::kScratch, block, 1}; }
inline BlockRange inputs(int first, int count) { return {Space::kInput, first, count}; }
inline BlockRange outputs(int first, int count) { return {Space::kOutput, first, count}; }
inline BlockRange scratches(int first, int count) { return {Space::kScratch, first, count}; }
inline BlockRange nothing() { return {Space::kOutput, 0, 0}; }

// How a space is cut into blocks, given the call's element count.
struct Partition {
  enum class Unit : uint8_t {
    kSplit,  // `blocks` parts of `count` elements in all, as even as can be
    kEach,   // `blocks` blocks of `count` elements each
  };
  int blocks = 0;
  Unit unit = Unit::kSplit;

  // kEach: whose block i is, which tells its size in uneven forms: rank (first + i) mod size's, or
  // owners[i]'s where there are any.
  int first = 0;
  std::vector<int> owners = {};
  int owner(int block, int size) const {
    return owners.empty() ? (first + block) % size : owners[block];
  }

  // First element of block `block` (block == blocks: one past the last).
  int64_t begin(int block, int64_t count) const;

  // The same where ranks' blocks differ in size: `sums` has size + 1 entries, entry r the elements
  // of all ranks before r. Of kEach alone.
  int64_t begin(int block, const std::vector<int64_t>& sums) const;
};

// The uneven counts of a call: for each space the sums that Partition::begin() takes. An empty one
// is as the other. Scratch goes by the input's where the input has more blocks than one, else by
// the output's. Where a rank does not know the counts of others, which are not in its spaces
// either, they may be 0.
struct Counts {
  std::vector<int64_t> input;
  std::vector<int64_t> output;
};

// Where a range lies in its space.
struct Elements {
  int64_t begin = 0;
  int64_t size = 0;
};

enum class StepKind : uint8_t {
  kSend,     // source goes to all of `peers`, one message each, the same bytes
  kReceive,  // one message from the one peer overwrites target
  kReduce,   // one message from each of `peers`; target = source and they, reduced in rank order
  kCopy,     // target = source, here
};

struct Dependency {
  int step = 0;
  bool whole = false;  // wait for all its chunks, not only for the same one
};

// A step's place in the stream of messages with one peer on one lane, in one direction.
struct StreamPlace {
  int stream = 0;    // index into Plan::streams
  int position = 0;  // how many messages come before it, in this direction
};

struct Step {
  StepKind kind = StepKind::kCopy;
  int lane = 0;
  std::vector<int> peers;  // ascending
  BlockRange source;       // kSend, kCopy: read. kReduce: this rank's operand
  BlockRange target;       // kReceive, kReduce, kCopy: written

  // kReduce. The operands, left to right: the peers' in the order of `peers`, with this rank's own
  // before peer number `own_place` (0: first; peers.size(): last).
  int own_place = 0;
  bool received_raw = false;  // what arrives is peers' unreduced input
  bool final = false;         // target is then complete: all contributions are in it

  // Filled in by finish().
  std::vector<Dependency> after;
  std::vector<StreamPlace> places;  // one for each of `peers`
};

struct Stream {
  int peer = 0;
  int lane = 0;
  int sends = 0;     // messages of this plan, there
  int receives = 0;  // and from there
};

class Plan {
 public:
  std::string algorithm;  // "ring", "recursive_doubling", ...
  Partition partitions[kSpaces];

  // In place, block i of the input is the same memory as block i + input_offset of the output. It
  // may be negative: then the output is a part of the input.
  int input_offset = 0;
  bool allows_in_place = true;  // else input and output never share memory

  std::vector<Step> steps;
  std::vector<Stream> streams;  // filled in by finish()

  // Algorithms add their steps by these, in an order that is right if done one after another.
  Step& send(std::vector<int> peers, BlockRange source, int lane = 0);
  Step& receive(int peer, BlockRange target, int lane = 0);
  Step& reduce(std::vector<int> peers, int own_place, BlockRange own, BlockRange target,
               int lane = 0);
  Step& copy(BlockRange source, BlockRange target);

  // So many blocks more of scratch.
  BlockRange add_scratch(int count);

  // Works out `after`, `places` and `streams`. Every algorithm ends with it.
  void finish();

  // The range as what it is in place: input blocks are output blocks, of which the first may then
  // be negative.
  BlockRange in_place(BlockRange range) const;

  // In elements, where each block of kEach has `count`, or what `counts` says if it is not null.
  Elements elements(BlockRange range, int64_t count, const Counts* counts = nullptr) const;

  // Of the whole space.
  int64_t space_elements(Space space, int64_t count, const Counts* counts = nullptr) const;
};

}  // namespace ciuic::plan
