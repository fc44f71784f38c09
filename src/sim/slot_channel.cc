// SPDX-License-Identifier: Apache-2.0
// slot_channel.cc: lines and slots.

#include "sim/slot_channel.h"

#include <algorithm>

namespace ciuic::sim {

bool SlotPool::has_free() const {
  return reuses_early_ || std::any_of(slots_.begin(), slots_.end(),
                                      [](const Slot& slot) { return slot.readers == 0; });
}

uint64_t SlotPool::fill(const std::byte* payload, size_t bytes) {
  size_t place = next_;
  for (size_t i = 0; i < slots_.size(); ++i) {
    place = (next_ + i) % slots_.size();
    if (slots_[place].readers == 0 || reuses_early_) break;
  }
  if (slots_[place].readers > 0 && !reuses_early_) {  // a planted message came on top
    place = slots_.size();
    slots_.emplace_back();
  }
  next_ = (place + 1) % slots_.size();
  Slot& slot = slots_[place];
  if (slot.bytes.size() < bytes) slot.bytes.resize(bytes);
  std::copy(payload, payload + bytes, slot.bytes.begin());
  slot.readers = 1;
  // The place in the low bits, so that a use leads to its slot.
  slot.use = (++uses_ << 8) | place;
  return slot.use;
}

void SlotPool::publish(uint64_t use, transport::Publication* publication) const {
  publication->owner = this;
  publication->slot = static_cast<int>(use);
}

bool SlotPool::share(const transport::Publication& publication) {
  if (publication.owner != this || publication.slot < 0) return false;
  Slot& slot = slots_[publication.slot & 0xff];
  if (static_cast<int>(slot.use) != publication.slot || slot.readers == 0) return false;
  ++slot.readers;
  return true;
}

const std::byte* SlotPool::payload(uint64_t use) const { return slots_[use & 0xff].bytes.data(); }

void SlotPool::release(uint64_t use) {
  Slot& slot = slots_[use & 0xff];
  if (slot.use != use || slot.readers == 0) return;  // reused early
  if (--slot.readers == 0) spoil(slot.bytes.data(), slot.bytes.size(), use);
}

SlotChannel::SlotChannel(World* world, int from, int to, const ChannelOptions& options,
                         Random random, std::shared_ptr<SlotPool> pool)
    : Channel(world, from, to, options, random), pool_(std::move(pool)) {}

bool SlotChannel::has_room(size_t payload_bytes) {
  if (!can_move() || lines_.size() >= options_.queue_messages) return false;
  return payload_bytes <= options_.inline_bytes || pool_->has_free();
}

void SlotChannel::accept(Outgoing message) {
  if (is_mutant(Mutant::kSlotReusedEarly)) pool_->reuse_early();
  Line line;
  line.header = message.header;
  const size_t bytes = message.header.payload_bytes;
  const std::byte* payload = message.own.empty() ? message.payload : message.own.data();
  if (bytes <= options_.inline_bytes) {
    line.bytes.assign(payload, payload + bytes);
  } else if (message.publication != nullptr && pool_->share(*message.publication)) {
    line.use = static_cast<uint64_t>(message.publication->slot);
  } else {
    line.use = pool_->fill(payload, bytes);
    if (message.publication != nullptr) pool_->publish(line.use, message.publication);
  }
  line.at = arrival_time(bytes);
  line.delivered = message.delivered;
  lines_.push_back(std::move(line));
  if (message.counts && !is_mutant(Mutant::kCompletionLost)) ++sent_;
}

bool SlotChannel::has_arrivals() const {
  return !lines_.empty() && lines_.front().at <= std::min(world_->now(), arrivals_until_);
}

bool SlotChannel::pull() {
  if (is_mutant(Mutant::kPayloadGone)) spoil_handed_out();
  return false;
}

bool SlotChannel::receive(transport::Arrival* arrival) {
  while (!receiver_closed_ && has_arrivals()) {
    Line line = std::move(lines_.front());
    lines_.pop_front();
    wake_sender(world_->now() + options_.latency_min);
    if (!line.delivered) {
      if (line.use != 0) pool_->release(line.use);
      continue;
    }
    *arrival = {.header = line.header};
    if (line.header.payload_bytes == 0) return true;
    hand_out(arrival, line.use != 0 ? pool_->payload(line.use) : line.bytes.data(), line.use);
    return true;
  }
  return false;
}

void SlotChannel::released(uint64_t use) {
  if (use == 0) return;
  pool_->release(use);
  // All the pool's writers wait for slots, not only this channel's; they are one process.
  wake_sender(world_->now() + options_.latency_min);
}

void SlotChannel::close_receiver() {
  receiver_closed_ = true;
  for (const Line& line : lines_) {
    if (line.use != 0) pool_->release(line.use);
  }
  lines_.clear();
  release_all();
  wake_sender(world_->now());
}

}  // namespace ciuic::sim
