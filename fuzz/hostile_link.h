// SPDX-License-Identifier: Apache-2.0
// hostile_link.h: links between engines of one process, on whose messages the fuzzer lays hands.
//
// Payloads lie in memory exactly as large as they are and go as soon as they may, so that a byte
// too far, or a byte too late, is seen.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ciuic/status.h"
#include "input.h"
#include "transport/link.h"

namespace ciuic::fuzz {

struct Message {
  wire::Header header;
  std::unique_ptr<std::byte[]> payload;
  const std::byte* source = nullptr;  // of a payload that has not been sent yet
};

// One direction between two ranks.
struct Pipe {
  std::deque<Message> waiting;  // for the link to send them
  std::deque<Message> arrived;
  uint64_t calls = 0;
  uint64_t sent = 0;
  size_t room = 64;        // messages that may wait
  bool is_cut = false;     // nothing comes any more
  bool is_broken = false;  // something came that is no message

  // Bytes leave the sender's memory.
  void flush(size_t messages) {
    for (; messages > 0 && !waiting.empty(); --messages) {
      Message& message = waiting.front();
      const size_t bytes = message.header.payload_bytes;
      message.payload = std::make_unique<std::byte[]>(bytes);
      if (bytes > 0) std::memcpy(message.payload.get(), message.source, bytes);
      arrived.push_back(std::move(message));
      waiting.pop_front();
      ++sent;
    }
  }
};

class HostileLink final : public transport::Link {
 public:
  struct Manner {
    bool sends_at_once = true;      // like shared memory; else payloads are needed for longer
    size_t places_from = SIZE_MAX;  // bytes of a payload that waits until it is placed, like TCP's
  };

  HostileLink(int peer, Manner manner, std::shared_ptr<Pipe> out, std::shared_ptr<Pipe> in)
      : name_("rank " + std::to_string(peer)),
        manner_(manner),
        out_(std::move(out)),
        in_(std::move(in)) {}

  const char* transport() const override { return "fuzz"; }
  size_t max_payload() const override { return wire::kMaxPayloadBytes; }

  bool progress() override {
    if (in_->is_broken && status_.ok()) status_ = {StatusCode::kMismatch, name_ + " sent nonsense"};
    if (in_->is_cut && in_->arrived.empty() && status_.ok()) {
      status_ = {StatusCode::kPeerLost, name_ + " is gone"};
    }
    return false;
  }
  const Status& status() const override { return status_; }
  bool can_send(size_t /*payload_bytes*/) override {
    return status_.ok() && !closed_ && out_->waiting.size() < out_->room;
  }

  void send(const wire::Header& header, const std::byte* payload,
            transport::Publication* /*publication*/) override {
    require(!closed_ && status_.ok(), "no message to a link that is closed");
    out_->waiting.push_back({header, nullptr, payload});
    ++out_->calls;
    if (manner_.sends_at_once) out_->flush(1);
  }
  uint64_t sent() const override { return closed_ ? out_->calls : out_->sent; }

  bool receive(transport::Arrival* arrival) override {
    if (closed_ || in_->is_broken || placing_ || in_->arrived.empty()) return false;
    Message& message = in_->arrived.front();
    const size_t bytes = message.header.payload_bytes;
    *arrival = {message.header, nullptr, 0};
    if (destination_ != nullptr) {
      std::memcpy(destination_, message.payload.get(), bytes);
      arrival->data = std::exchange(destination_, nullptr);
    } else if (bytes >= manner_.places_from && bytes > 0) {
      placing_ = true;
      return true;
    } else if (bytes > 0) {
      arrival->token = ++last_token_;
      arrival->data = message.payload.get();
      held_[arrival->token] = std::move(message.payload);
    }
    in_->arrived.pop_front();
    return true;
  }
  void place(std::byte* destination) override {
    require(placing_ && destination != nullptr, "a place for what waits for one");
    placing_ = false;
    destination_ = destination;
  }
  void release(uint64_t token) override {
    if (token != 0) require(held_.erase(token) == 1, "a payload is released once");
  }

  void close() override {
    if (closed_) return;
    closed_ = true;
    wire::Header goodbye;
    goodbye.type = wire::MessageType::kGoodbye;
    goodbye.epoch = epoch;
    goodbye.group = group;
    out_->waiting.clear();
    out_->arrived.push_back({goodbye, nullptr, nullptr});
    out_->sent = out_->calls;
    destination_ = nullptr;
  }
  size_t buffer_bytes() const override { return 0; }

  uint32_t epoch = 0;  // for the goodbye
  uint32_t group = 0;

 private:
  std::string name_;
  Manner manner_;
  std::shared_ptr<Pipe> out_;
  std::shared_ptr<Pipe> in_;
  Status status_;
  bool closed_ = false;
  bool placing_ = false;
  std::byte* destination_ = nullptr;
  uint64_t last_token_ = 0;
  std::map<uint64_t, std::unique_ptr<std::byte[]>> held_;
};

}  // namespace ciuic::fuzz
