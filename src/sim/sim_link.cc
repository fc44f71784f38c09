// SPDX-License-Identifier: Apache-2.0
// sim_link.cc: hands everything on to the two channels, and notices when they end.

#include "sim/sim_link.h"

#include <fmt/format.h>

#include <algorithm>

namespace ciuic::sim {

SimLink::SimLink(World* world, SimLinkConfig config, std::shared_ptr<Channel> out,
                 std::shared_ptr<Channel> in)
    : world_(world),
      busy_until_(std::max(out->busy_at_first(), in->busy_at_first())),
      config_(config),
      out_(std::move(out)),
      in_(std::move(in)) {
  out_->note_sender(&busy_until_);
  in_->note_receiver(&busy_until_);
}

SimLink::~SimLink() {
  close();
  out_->note_sender(nullptr);
  in_->note_receiver(nullptr);
}

bool SimLink::progress() {
  if (closed_ || is_quiet()) return false;
  looked_at_ = world_->now();
  const bool moved = look();
  pending_ = moved || in_->has_arrivals();
  return moved;
}

bool SimLink::look() {
  bool moved = out_->push();
  moved = in_->pull() || moved;
  moved = in_->has_arrivals() || moved;
  if (!status_.ok() || config_.is_blind) return moved;
  const TimeNs now = world_->now();
  const bool ended =
      (config_.end_is_loss || in_->has_died()) && now >= in_->end_at() && !in_->has_arrivals();
  if (!ended && !out_->is_cut() && !in_->is_cut()) return moved;
  if (seen_loss_at_ == kNever) {
    seen_loss_at_ = now + config_.notice;
    out_->wake_sender(seen_loss_at_);
  }
  if (now < seen_loss_at_) return moved;
  // A peer that closes has received what it was sent, and one that dies is done with it.
  if (ended) out_->complete(kNever);
  const char* how = "is lost: the connection was cut";
  if (ended)
    how = in_->has_died() ? "is gone: its process has ended" : "has closed its communicator";
  status_ = {StatusCode::kPeerLost, fmt::format("rank {} {}", config_.peer, how)};
  return true;
}

void SimLink::peer_gone(const Status& why) {
  if (!closed_ && status_.ok() && !config_.is_blind && !out_->is_up()) status_ = why;
}

bool SimLink::can_send(size_t payload_bytes) {
  if (payload_bytes > kSimMaxPayload) world_->complain("can_send() of more than max_payload()");
  return !closed_ && status_.ok() && out_->can_send(payload_bytes);
}

void SimLink::send(const wire::Header& header, const std::byte* payload,
                   transport::Publication* publication) {
  out_->send(header, payload, publication);
}

bool SimLink::receive(transport::Arrival* arrival) {
  return !closed_ && !is_quiet() && in_->receive(arrival);
}

void SimLink::close() {
  if (closed_) return;
  closed_ = true;
  wire::Header goodbye;
  goodbye.type = wire::MessageType::kGoodbye;
  goodbye.group = config_.group;
  goodbye.epoch = config_.epoch;
  out_->close_sender(goodbye);
  in_->close_receiver();
}

}  // namespace ciuic::sim
