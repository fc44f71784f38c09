// SPDX-License-Identifier: Apache-2.0
// shm_link.h: a link to a process on the same host, over the two ranks' shared-memory segments.
//
// A message is one line in the ring to the peer: with a payload up to kInlineBytes in it, or with
// the number of a slot into which the payload was copied. A slot that was published is named to its
// further readers without another copy. A payload that lies in a shared tensor may be read there
// (lending.h). The reader takes lines at once and gives slots back in any
// order. The Unix socket over which the two were paired stays open: its end is the peer's end.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "drivers/posix/memfd.h"
#include "drivers/posix/poller.h"
#include "drivers/posix/unique_fd.h"
#include "transport/link.h"
#include "transport/shm/borrowing.h"
#include "transport/shm/lending.h"
#include "transport/shm/segment.h"

namespace ciuic::transport::shm {

struct ShmLinkOptions {
  std::shared_ptr<Segment> segment;  // this rank's
  int peer = -1;                     // rank
  std::string peer_name;             // for messages: "rank 3"
  SegmentView peer_segment;          // checked by check_segment()
  posix::Mapping mapping;            // that it lies in; empty where someone else owns it
  posix::UniqueFd doorbell;          // the peer's eventfd
  posix::UniqueFd socket;            // to the peer
  posix::Poller* poller = nullptr;   // outlives the link
};

class ShmLink final : public Link {
 public:
  static Result<std::unique_ptr<ShmLink>> create(ShmLinkOptions options);
  ~ShmLink() override;

  const char* transport() const override { return "shm"; }
  size_t max_payload() const override { return kLargeSlotBytes; }
  bool progress() override;
  const Status& status() const override { return status_; }
  bool can_send(size_t payload_bytes) override;
  void send(const wire::Header& header, const std::byte* payload,
            Publication* publication) override;
  // At once what is copied; what is lent, when it is returned.
  uint64_t sent() const override {
    return lender_ == nullptr || !lender_->has_lent() ? sent_ : lender_->oldest_call() - 1;
  }
  bool receive(Arrival* arrival) override;
  void place(std::byte* destination) override;
  void release(uint64_t token) override;
  bool is_intact(uint64_t token) override;
  void close() override;
  size_t buffer_bytes() const override { return sizeof *this; }  // the segment is counted by itself

 private:
  explicit ShmLink(ShmLinkOptions options);

  bool find_space(size_t payload_bytes);
  int slot_for(const wire::Header& header, const std::byte* payload, Publication* publication);
  Line& begin_line(const wire::Header& header, uint64_t payload_code);
  void end_line(Line& line, uint32_t fingerprint);
  void write_line(const wire::Header& header, const std::byte* payload, int slot);
  bool lend(const wire::Header& header, const std::byte* payload);
  void look_at_lent();
  bool borrow(const Line::LentReference& reference, Arrival* arrival);
  void withdraw_lent();
  void read_notices();
  void take_notice();
  bool read_line(const Line& line, uint32_t fingerprint, Arrival* arrival);
  void look_at_socket();
  void ring_if(uint32_t bits);
  void finish_if_gone();
  void end_goodbye();
  bool receive_end(Arrival* arrival);
  void fail(StatusCode code, const std::string& what);

  // Looked at in every pass.
  Line* peer_ring_;            // from the peer to here
  uint64_t next_receive_ = 1;  // number of the line
  std::atomic<uint32_t> ready_{0};
  bool peer_gone_ = false;         // end of stream on the socket
  bool open_ = true;               // none of the following, and no error
  bool goodbye_ = false;           // the peer closed in good order
  bool goodbye_received_ = false;  // and receive() has said so
  bool closed_ = false;

  Line* own_ring_;
  uint64_t next_send_ = 1;
  uint64_t consumed_ = 0;  // lines of own_ring_ that the peer is known to have read
  uint64_t sent_ = 0;
  const std::atomic<uint32_t>* peer_sleeping_;
  const Feedback* peer_feedback_;
  Feedback* own_feedback_;

  // Payloads of lines, which are given back to the peer at once.
  struct alignas(32) Copy {
    std::array<std::byte, kInlineBytes> bytes;
  };
  std::array<Copy, 64> copies_;
  uint64_t free_copies_ = ~uint64_t{0};

  // Made when they are first needed.
  std::unique_ptr<Lender> lender_;
  std::unique_ptr<Borrower> borrower_;
  std::string notice_;  // as far as it has come
  std::vector<posix::UniqueFd> passed_;

  ShmLinkOptions options_;
  int own_index_;
  int peer_index_;
  pid_t pid_;  // a forked child only lets go
  Status status_;
};

}  // namespace ciuic::transport::shm
