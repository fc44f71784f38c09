// SPDX-License-Identifier: Apache-2.0
// members.cc: the all-reduces that flat and two-level algorithms share.

#include "plan/members.h"

#include "plan/doubling.h"
#include "plan/peers.h"

namespace ciuic::plan {

Members whole_group(int size, int rank) {
  return {all_ranks(size), std::vector<bool>(size, true), rank};
}

// A value that was reduced stands in turn in scratch and in output, and must end in output.
static BlockRange place_before(int rounds_left, int block) {
  return rounds_left % 2 == 0 ? output(block) : scratch(block);
}

BlockRange first_place(const Members& members, int block) {
  const Doubling doubling(members.size());
  if (doubling.paired(members.place)) return output(block);
  return place_before(doubling.rounds, block);
}

void add_recursive_doubling(Plan* plan, const Members& members, int block, BlockRange value) {
  const Doubling doubling(members.size());
  const int place = members.place;
  if (doubling.waits(place)) {
    plan->send({members.ranks[place - 1]}, value);
    plan->receive(members.ranks[place - 1], output(block));
    return;
  }
  const bool paired = doubling.paired(place);
  if (paired) {
    const BlockRange target = place_before(doubling.rounds, block);
    Step& fold = plan->reduce({members.ranks[place + 1]}, /*own_place=*/0, value, target);
    fold.received_raw = members.raw[place + 1];
    value = target;
  }
  const int group = doubling.group_of(place);
  for (int round = 0; round < doubling.rounds; ++round) {
    const int other_group = group ^ (1 << round);
    const int other = doubling.place_of(other_group);
    // A rank may not write where its send still reads, or two ranks could wait for each other. In
    // place, input is output; hence what stands in either goes to scratch.
    const BlockRange target = value.space == Space::kScratch ? output(block) : scratch(block);
    plan->send({members.ranks[other]}, value);
    Step& fold = plan->reduce({members.ranks[other]}, /*own_place=*/other_group < group ? 1 : 0,
                              value, target);
    fold.received_raw = round == 0 && members.raw[other] && !doubling.paired(other);
    fold.final = round == doubling.rounds - 1;
    value = target;
  }
  if (value.space != Space::kOutput) plan->copy(value, output(block));
  if (paired) plan->send({members.ranks[place + 1]}, output(block));
}

void add_ring(Plan* plan, const Members& members, int first_block, bool reduced) {
  const int size = members.size();
  const int place = members.place;
  const int next = members.ranks[around(place + 1, size)];
  const int prev_place = around(place - 1, size);
  const int prev = members.ranks[prev_place];
  const auto block_at = [&](int index) { return first_block + around(index, size); };
  const auto own = [&](int block) { return reduced ? output(block) : input(block); };

  // Reduce-scatter: block c sets out at place c and gathers one contribution a hop, so its sum is
  // complete at place c - 1, added up by one owner in one order.
  for (int hop = 0; hop < size - 1; ++hop) {
    const int leaving = block_at(place - hop);
    const int coming = block_at(place - hop - 1);
    plan->send({next}, hop == 0 ? own(leaving) : output(leaving));
    Step& fold = plan->reduce({prev}, /*own_place=*/1, own(coming), output(coming));
    fold.received_raw = hop == 0 && members.raw[prev_place];
    fold.final = hop == size - 2;
  }

  // All-gather: the complete blocks go round once more and overwrite what they meet. Nothing is
  // added here, which is why all ranks end with the same bits.
  for (int hop = 0; hop < size - 1; ++hop) {
    plan->send({next}, output(block_at(place + 1 - hop)));
    plan->receive(prev, output(block_at(place - hop)));
  }
}

int halving_blocks(int size) { return Doubling(size).power; }

void add_halving(Plan* plan, const Members& members, int first_block, bool reduced) {
  const Doubling doubling(members.size());
  const int place = members.place;
  const int blocks = doubling.power;
  const BlockRange all = outputs(first_block, blocks);
  BlockRange value = reduced ? all : inputs(first_block, blocks);
  if (doubling.waits(place)) {
    plan->send({members.ranks[place - 1]}, value);
    plan->receive(members.ranks[place - 1], all);
    return;
  }
  const bool paired = doubling.paired(place);
  if (paired) {
    Step& fold = plan->reduce({members.ranks[place + 1]}, /*own_place=*/0, value, all);
    fold.received_raw = members.raw[place + 1];
    value = all;
  }
  const int group = doubling.group_of(place);

  // Of what is still a rank's, its partner gets one half, and it folds the other, until one block
  // is left. What is being sent is not what is written.
  int first = 0;
  for (int half = blocks / 2; half >= 1; half /= 2) {
    const int other_group = group ^ half;
    const int other = doubling.place_of(other_group);
    const bool upper = other_group < group;
    const int mine = upper ? first + half : first;
    const int theirs = upper ? first : first + half;
    plan->send({members.ranks[other]}, value.part(theirs, half));
    Step& fold = plan->reduce({members.ranks[other]}, /*own_place=*/upper ? 1 : 0,
                              value.part(mine, half), all.part(mine, half));
    fold.received_raw = half == blocks / 2 && members.raw[other] && !doubling.paired(other);
    fold.final = half == 1;
    value = all;
    first = mine;
  }

  // And back: what is complete doubles.
  for (int half = 1; half < blocks; half *= 2) {
    const int other = doubling.place_of(group ^ half);
    first = group / half * half;
    plan->send({members.ranks[other]}, all.part(first, half));
    plan->receive(members.ranks[other], all.part(first ^ half, half));
  }
  if (paired) plan->send({members.ranks[place + 1]}, all);
}

}  // namespace ciuic::plan
