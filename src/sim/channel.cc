// SPDX-License-Identifier: Apache-2.0
// channel.cc: what both kinds of channel share: who may send when, tokens, planted faults.

#include "sim/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace ciuic::sim {

const char* name_of(Mutant mutant) {
  switch (mutant) {
    case Mutant::kNone: return "none";
    case Mutant::kCompletionLost: return "completion_lost";
    case Mutant::kCompletionEarly: return "completion_early";
    case Mutant::kMessageLost: return "message_lost";
    case Mutant::kMessageTwice: return "message_twice";
    case Mutant::kMessagesSwapped: return "messages_swapped";
    case Mutant::kBytesWrong: return "bytes_wrong";
    case Mutant::kBlockWrong: return "block_wrong";
    case Mutant::kPlacedEarly: return "placed_early";
    case Mutant::kPayloadGone: return "payload_gone";
    case Mutant::kSlotReusedEarly: return "slot_reused_early";
    case Mutant::kCreditLost: return "credit_lost";
    case Mutant::kAnnouncementLost: return "announcement_lost";
    case Mutant::kReleaseLost: return "release_lost";
  }
  return "unknown";
}

uint64_t hash_of(const std::byte* data, size_t bytes) {
  uint64_t hash = bytes;
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data + i, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  for (; i < bytes; ++i) hash = (hash ^ static_cast<uint64_t>(data[i])) * 0x100000001b3u;
  return mix(hash);
}

void spoil(std::byte* data, size_t bytes, uint64_t seed) {
  // No small number in any dtype, so that a sum with it in stands out.
  const uint64_t garbage = 0x4040404040404040u | (mix(seed) & 0x3f3f3f3f3f3f3f3fu);
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t word = garbage ^ (i & 0x38);
    std::memcpy(data + i, &word, std::min<size_t>(8, bytes - i));
  }
}

Channel::Channel(World* world, int from, int to, const ChannelOptions& options, Random random)
    : world_(world),
      from_(from),
      to_(to),
      options_(options),
      random_(random),
      up_at_(options.up_at) {
  wake_sender(up_at_);
  if (options_.stall_until != kNever) wake_sender(options_.stall_until);
}

TimeNs Channel::busy_at_first() const {
  const TimeNs stall = options_.stall_until == kNever ? 0 : options_.stall_until;
  return std::max(up_at_, stall);
}

void Channel::complain(const std::string& what) {
  world_->complain(fmt::format("channel from {} to {}: {}", from_, to_, what));
}

bool Channel::is_mutant(Mutant mutant) const {
  return options_.mutant == mutant && mutant_seen_ > options_.mutant_after;
}

bool Channel::can_move() const {
  const TimeNs now = world_->now();
  return now >= up_at_ && now < cut_at_ &&
         (now < options_.stall_from || now >= options_.stall_until);
}

TimeNs Channel::arrival_time(size_t bytes) {
  TimeNs at = world_->now() + random_.between(options_.latency_min, options_.latency_max);
  if (at >= options_.stall_from && at < options_.stall_until) at = options_.stall_until;
  at = std::max(at, last_arrival_) + static_cast<int64_t>(bytes) * options_.ps_per_byte / 1000;
  last_arrival_ = at;
  wake_receiver(at);
  return at;
}

void Channel::cut(TimeNs at) {
  cut_at_ = std::min(cut_at_, at);
  arrivals_until_ = std::min(arrivals_until_, at);
  wake_sender(at);
  wake_receiver(at);
}

bool Channel::can_send(size_t payload_bytes) {
  said_yes_ = false;
  const TimeNs now = world_->now();
  if (sender_closed_ || now < up_at_ || is_cut() || now < refuse_until_) return false;
  if (random_.chance(options_.refuse_percent)) {
    refuse_until_ = now + random_.spread(100, 50'000);
    wake_sender(refuse_until_);
    return false;
  }
  said_yes_ = has_room(payload_bytes);
  yes_bytes_ = payload_bytes;
  return said_yes_;
}

void Channel::send(const wire::Header& header, const std::byte* payload,
                   transport::Publication* publication) {
  if (!said_yes_ || header.payload_bytes > yes_bytes_) complain("send() without can_send()");
  if (header.payload_bytes > 0 && payload == nullptr) complain("send() without its payload");
  if (sender_closed_) complain("send() after close()");
  said_yes_ = false;
  world_->sending(from_, to_, header);
  Outgoing message{.header = header, .payload = payload, .own = {}, .publication = publication};
  if (lie_ != nullptr) tell_lie(&message);
  if (!mutate(&message)) accept(std::move(message));
}

void Channel::close_sender(const wire::Header& goodbye) {
  if (sender_closed_) return;
  const bool can_say = is_up() && !is_cut();
  if (can_say) {
    world_->sending(from_, to_, goodbye);
    Outgoing message;
    message.header = goodbye;
    accept(std::move(message));
  }
  flush_and_end();
  sender_closed_ = true;
  if (can_say) end_at_ = arrival_time(0);
}

void Channel::die(bool loses) {
  if (sender_closed_) return;
  sender_closed_ = died_ = true;
  if (!is_up()) {  // it never will be, which only others can tell
    up_at_ = kNever;
    return;
  }
  forget_unsent();
  if (loses) arrivals_until_ = std::min(arrivals_until_, world_->now());
  if (!is_cut()) end_at_ = arrival_time(0);
}

void Channel::tell_lie(Outgoing* message) {
  wire::Header& header = message->header;
  if (lie_->told_at != kNever) return;
  const bool is_data = header.type == wire::MessageType::kData;
  const bool is_credit = header.type == wire::MessageType::kCredit;
  if (lie_->kind == BadMessage::kCredits ? !is_credit : !is_data) return;
  if (lie_->spared > 0) {
    --lie_->spared;
    return;
  }
  lie_->told_at = world_->now();
  switch (lie_->kind) {
    case BadMessage::kFingerprint: header.fingerprint ^= 1u << random_.between(0, 31); break;
    case BadMessage::kStep: ++header.step; break;
    case BadMessage::kChunk: ++header.chunk; break;
    case BadMessage::kMessageBytes: header.message_bytes += random_.spread(1, 100'000); break;
    case BadMessage::kPayloadBytes: {
      const auto bytes = static_cast<uint32_t>(random_.spread(1, kSimMaxPayload));
      message->own.assign(bytes, std::byte{0x55});
      message->publication = nullptr;
      header.payload_bytes = bytes == header.payload_bytes ? bytes - 1 : bytes;
      break;
    }
    case BadMessage::kSequenceAhead: header.sequence += random_.spread(1, 1'000'000); break;
    case BadMessage::kSequenceBehind: header.sequence -= random_.spread(1, 1'000'000); break;
    case BadMessage::kCredits: header.chunk += random_.spread(1, 1'000'000); break;
    case BadMessage::kLane: header.lane ^= 1u << random_.between(0, 7); break;
    case BadMessage::kGroup: ++header.group; break;
    case BadMessage::kEpoch: --header.epoch; break;
  }
}

// Makes the message's payload its own, so that it can be changed, or sent later.
static void own_payload(const std::byte* payload, size_t bytes, std::vector<std::byte>* own) {
  own->assign(payload, payload + bytes);
}

bool Channel::mutate(Outgoing* message) {
  const wire::MessageType type = message->header.type;
  const size_t bytes = message->header.payload_bytes;
  const bool is_data = type == wire::MessageType::kData && bytes > 0;
  switch (options_.mutant) {
    case Mutant::kNone: return false;
    case Mutant::kCreditLost:
      if (type != wire::MessageType::kCredit) return false;
      break;
    case Mutant::kAnnouncementLost:
      if (type != wire::MessageType::kAnnounce) return false;
      break;
    default:
      if (!is_data) return false;
  }
  ++mutant_seen_;
  if (mutant_seen_ <= options_.mutant_after || mutant_done_) return false;
  switch (options_.mutant) {
    case Mutant::kCreditLost:
    case Mutant::kAnnouncementLost:
    case Mutant::kMessageLost:
      message->delivered = false;
      mutant_done_ = true;
      return false;
    case Mutant::kMessageTwice: {
      Outgoing again;
      again.header = message->header;
      again.counts = false;
      own_payload(message->payload, bytes, &again.own);
      accept(std::move(*message));
      accept(std::move(again));
      mutant_done_ = true;
      return true;
    }
    case Mutant::kBytesWrong:
      own_payload(message->payload, bytes, &message->own);
      message->own[random_.next() % bytes] ^= static_cast<std::byte>(1 << random_.between(0, 7));
      message->publication = nullptr;
      mutant_done_ = true;
      return false;
    case Mutant::kMessagesSwapped:
    case Mutant::kBlockWrong: break;
    default: return false;
  }
  if (kept_ == nullptr) {
    kept_ = std::make_unique<Outgoing>();
    kept_->header = message->header;
    own_payload(message->payload, bytes, &kept_->own);
    return options_.mutant == Mutant::kMessagesSwapped;
  }
  if (options_.mutant == Mutant::kMessagesSwapped) {
    accept(std::move(*message));
    accept(std::move(*kept_));
    mutant_done_ = true;
    return true;
  }
  if (kept_->own.size() == bytes && std::memcmp(kept_->own.data(), message->payload, bytes) != 0) {
    message->own = kept_->own;
    message->publication = nullptr;
    mutant_done_ = true;
  }
  return false;
}

void Channel::place(std::byte* /*destination*/) {
  complain("place() for a message that came with its payload");
}

// Tokens: the place of the payload, and how often the place was used.
static constexpr uint64_t kPlaces = uint64_t{1} << 20;

void Channel::hand_out(transport::Arrival* arrival, const std::byte* payload, uint64_t slot_use) {
  size_t place = 0;
  while (place < handed_out_.size() && handed_out_[place].used) ++place;
  if (place == handed_out_.size()) handed_out_.emplace_back();
  HandedOut& out = handed_out_[place];
  out.bytes.assign(payload, payload + arrival->header.payload_bytes);
  out.hash = hash_of(out.bytes.data(), out.bytes.size());
  out.slot_use = slot_use;
  out.used = true;
  arrival->data = out.bytes.data();
  arrival->token = (slot_use + 1) * kPlaces + place;
  ++unreleased_;
}

void Channel::release(uint64_t token) {
  if (receiver_closed_) return complain("release() after close()");
  const size_t place = token % kPlaces;
  if (place >= handed_out_.size() || !handed_out_[place].used ||
      (handed_out_[place].slot_use + 1) * kPlaces + place != token) {
    return complain("release() of a token that is not out");
  }
  HandedOut& out = handed_out_[place];
  if (options_.mutant != Mutant::kPayloadGone &&
      hash_of(out.bytes.data(), out.bytes.size()) != out.hash) {
    complain("the receiver has written into a payload");
  }
  if (options_.mutant == Mutant::kReleaseLost && mutant_seen_++ == options_.mutant_after) return;
  spoil(out.bytes.data(), out.bytes.size(), token);
  out.used = false;
  --unreleased_;
  released(out.slot_use);
}

void Channel::release_all() {
  for (HandedOut& out : handed_out_) {
    if (!out.used) continue;
    spoil(out.bytes.data(), out.bytes.size(), 2);
    out.used = false;
    --unreleased_;
    released(out.slot_use);
  }
}

void Channel::spoil_handed_out() {
  for (HandedOut& out : handed_out_) {
    if (out.used) spoil(out.bytes.data(), out.bytes.size(), 1);
  }
}

}  // namespace ciuic::sim
