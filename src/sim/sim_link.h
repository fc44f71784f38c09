// SPDX-License-Identifier: Apache-2.0
// sim_link.h: transport::Link over two simulated channels, one each way.
#pragma once

#include <memory>

#include "sim/channel.h"
#include "transport/link.h"

namespace ciuic::sim {

struct SimLinkConfig {
  const char* transport = "sim";
  uint32_t group = 0;  // for the goodbye
  uint32_t epoch = 0;
  int peer = 0;              // rank in the group, for messages
  TimeNs notice = 0;         // from a cut, or the peer's close, until status() says so
  bool end_is_loss = false;  // whether the peer's close shows in status(), as it does on a socket
  bool is_blind = false;     // planted: it never sees that the peer is gone
};

class SimLink final : public transport::Link {
 public:
  SimLink(World* world, SimLinkConfig config, std::shared_ptr<Channel> out,
          std::shared_ptr<Channel> in);
  ~SimLink() override;

  const char* transport() const override { return config_.transport; }
  size_t max_payload() const override { return kSimMaxPayload; }
  bool progress() override;
  const Status& status() const override { return status_; }
  bool can_send(size_t payload_bytes) override;
  void send(const wire::Header& header, const std::byte* payload,
            transport::Publication* publication) override;
  uint64_t sent() const override { return out_->sent(); }
  bool receive(transport::Arrival* arrival) override;
  void place(std::byte* destination) override { in_->place(destination); }
  void release(uint64_t token) override { in_->release(token); }
  void peer_gone(const Status& why) override;
  void close() override;
  size_t buffer_bytes() const override { return 0; }

 private:
  bool is_quiet() const { return !pending_ && looked_at_ > busy_until_; }
  bool look();

  World* world_;
  TimeNs busy_until_;  // what is known to come has come by then
  TimeNs looked_at_ = -1;
  bool pending_ = true;  // something moved, or waited, then
  const SimLinkConfig config_;
  std::shared_ptr<Channel> out_;
  std::shared_ptr<Channel> in_;
  Status status_;
  TimeNs seen_loss_at_ = kNever;
  bool closed_ = false;
};

}  // namespace ciuic::sim
