// SPDX-License-Identifier: Apache-2.0
// stream_channel.cc: bytes through a socket's buffer, in pieces.

#include "sim/stream_channel.h"

#include <algorithm>
#include <cstring>

namespace ciuic::sim {

bool StreamChannel::has_room(size_t /*payload_bytes*/) {
  return messages_.size() - unwritten_ < options_.queue_messages;
}

void StreamChannel::accept(Outgoing message) {
  const size_t payload_bytes = message.header.payload_bytes;
  Message queued;
  queued.outgoing = std::move(message);
  Outgoing& outgoing = queued.outgoing;
  if (!outgoing.own.empty()) outgoing.payload = outgoing.own.data();
  queued.hash = hash_of(outgoing.payload, payload_bytes);
  queued.bytes.resize(payload_bytes);
  queued.total = wire::kHeaderBytes + payload_bytes;
  queued.begin = accepted_end_;
  accepted_end_ += queued.total;
  if (is_mutant(Mutant::kCompletionEarly) && outgoing.counts) {
    outgoing.counts = false;
    ++sent_;
  }
  messages_.push_back(std::move(queued));
  wake_sender(world_->now());
}

bool StreamChannel::push() {
  if (sender_closed_) return false;
  const bool completed = complete(world_->now());
  return (can_move() && write()) || completed;
}

bool StreamChannel::complete(TimeNs until) {
  bool any = false;
  while (!completions_.empty() && completions_.front().at <= until) {
    const Completion& completion = completions_.front();
    if (completion.payload != nullptr &&
        hash_of(completion.payload, completion.bytes) != completion.hash) {
      complain("a payload changed before it was sent");
    }
    if (completion.counts && !is_mutant(Mutant::kCompletionLost)) ++sent_;
    completions_.pop_front();
    any = true;
  }
  return any;
}

bool StreamChannel::write() {
  bool any = false;
  while (unwritten_ < messages_.size()) {
    Message& message = messages_[unwritten_];
    const size_t in_buffer = receiver_closed_ ? 0 : written_end_ - read_end_;
    if (in_buffer >= options_.socket_bytes) break;
    size_t bytes = std::min(message.total - message.written, options_.socket_bytes - in_buffer);
    if (random_.chance(30)) bytes = random_.between(1, bytes);
    const size_t end = message.written + bytes;
    if (end > wire::kHeaderBytes) {
      const size_t first = std::max(message.written, wire::kHeaderBytes) - wire::kHeaderBytes;
      std::memcpy(message.bytes.data() + first, message.outgoing.payload + first,
                  end - wire::kHeaderBytes - first);
    }
    message.written = end;
    written_end_ += bytes;
    pieces_.push_back({written_end_, arrival_time(bytes)});
    any = true;
    if (message.written < message.total) continue;
    const bool is_callers = message.outgoing.counts && message.outgoing.own.empty();
    completions_.push_back({.at = world_->now() + options_.completion_delay,
                            .payload = is_callers ? message.outgoing.payload : nullptr,
                            .bytes = message.bytes.size(),
                            .hash = message.hash,
                            .counts = message.outgoing.counts});
    wake_sender(world_->now() + options_.completion_delay);
    ++unwritten_;
  }
  return any;
}

void StreamChannel::flush_and_end() {
  push();
  forget_unsent();
}

void StreamChannel::forget_unsent() {
  while (!messages_.empty() && messages_.back().written == 0) messages_.pop_back();
  unwritten_ = std::min(unwritten_, messages_.size());
  completions_.clear();
}

void StreamChannel::arrive() {
  while (!pieces_.empty() && pieces_.front().at <= std::min(world_->now(), arrivals_until_)) {
    arrived_end_ = pieces_.front().end;
    pieces_.pop_front();
  }
}

bool StreamChannel::has_arrivals() const {
  if (messages_.empty()) return false;
  const Message& message = messages_.front();
  if (arrived_end_ >= message.begin + message.total) return true;
  const bool is_announced_first = message.bytes.size() > options_.inline_bytes && !announced_;
  if (is_announced_first && arrived_end_ >= message.begin + wire::kHeaderBytes) return true;
  return !pieces_.empty() && pieces_.front().at <= std::min(world_->now(), arrivals_until_);
}

void StreamChannel::consume(size_t bytes) {
  read_end_ += bytes;
  wake_sender(world_->now() + options_.latency_min);
}

void StreamChannel::pop() {
  messages_.pop_front();
  --unwritten_;
  announced_ = false;
  destination_ = nullptr;
  placed_ = 0;
}

bool StreamChannel::receive(transport::Arrival* arrival) {
  arrive();
  while (!receiver_closed_ && !messages_.empty()) {
    Message& message = messages_.front();
    const size_t arrived = arrived_end_ - std::min(arrived_end_, message.begin);
    const size_t payload_bytes = message.bytes.size();
    *arrival = {.header = message.outgoing.header};
    if (destination_ != nullptr) {
      if (placed_ < payload_bytes) {
        if (!is_mutant(Mutant::kPlacedEarly) || arrived < message.total) return false;
        consume(payload_bytes - placed_);
      }
      arrival->data = destination_;
      pop();
      return true;
    }
    if (announced_ || arrived < wire::kHeaderBytes) return false;
    const bool whole = !message.outgoing.delivered || payload_bytes <= options_.inline_bytes;
    if (!whole) {
      announced_ = true;
      consume(wire::kHeaderBytes);
      return true;
    }
    if (arrived < message.total) return false;
    consume(message.total);
    const bool delivered = message.outgoing.delivered;
    if (delivered && payload_bytes > 0) hand_out(arrival, message.bytes.data(), 0);
    pop();
    if (delivered) return true;
  }
  return false;
}

void StreamChannel::place(std::byte* destination) {
  if (!announced_ || destination_ != nullptr) return complain("place() of nothing");
  destination_ = destination;
  spoil(destination_, messages_.front().bytes.size(), messages_.front().hash);
  wake_receiver(world_->now());
  if (random_.chance(50)) pull();
}

bool StreamChannel::pull() {
  if (receiver_closed_) return false;
  if (is_mutant(Mutant::kPayloadGone)) spoil_handed_out();
  arrive();
  if (destination_ == nullptr) return false;
  const Message& message = messages_.front();
  const size_t begin = message.begin + wire::kHeaderBytes;
  const size_t arrived = std::min(arrived_end_ - begin, message.bytes.size());
  if (arrived == placed_) return false;
  size_t bytes = arrived - placed_;
  if (random_.chance(30)) {
    bytes = random_.between(1, bytes);
    wake_receiver(world_->now() + 1);
  }
  std::memcpy(destination_ + placed_, message.bytes.data() + placed_, bytes);
  placed_ += bytes;
  consume(bytes);
  return true;
}

void StreamChannel::close_receiver() {
  receiver_closed_ = true;
  destination_ = nullptr;
  release_all();
}

}  // namespace ciuic::sim
