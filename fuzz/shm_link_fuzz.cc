// SPDX-License-Identifier: Apache-2.0
// shm_link_fuzz.cc: a peer on this host that writes anything into its own segment, at any moment.

#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <new>

#include "drivers/posix/poller.h"
#include "input.h"
#include "sockets.h"
#include "transport/shm/shm_link.h"

using namespace ciuic;
using transport::Arrival;
using transport::shm::Feedback;
using transport::shm::Line;
using transport::shm::SegmentLayout;
using transport::shm::SegmentView;

namespace {

constexpr int kMine = 0;
constexpr int kTheirs = 1;

// The peer's memory, exactly as large as it has to be, so that one byte beyond is seen.
class PeerMemory {
 public:
  PeerMemory() : layout_(SegmentLayout::for_ranks(2)) {
    bytes_ = static_cast<std::byte*>(::operator new(layout_.bytes, std::align_val_t{64}));
    std::memset(bytes_, 0, layout_.bytes);
  }
  ~PeerMemory() { ::operator delete(bytes_, std::align_val_t{64}); }

  SegmentView view() const { return SegmentView(bytes_, layout_); }

  bool holds(const std::byte* data, size_t bytes) const {
    return data >= bytes_ && data + bytes <= bytes_ + layout_.bytes;
  }

  // A line as honest ones are, but for what the input says of it.
  void write_line(fuzz::Input* input, uint32_t number) {
    Line& line = view().ring(kMine)[input->flag() ? input->below(64) : number % 64];
    const std::string_view raw = input->bytes(offsetof(Line, flag));
    std::memcpy(static_cast<void*>(&line), raw.data(), raw.size());
    const uint64_t payload = input->flag() ? uint64_t{transport::shm::kInSlot} : input->u8();
    line.bytes = (line.bytes & transport::shm::kMessageMask) | payload
                                                                   << transport::shm::kPayloadShift;
    if (payload == transport::shm::kInSlot) {
      line.payload.reference.slot = input->u8();
      line.payload.reference.payload_bytes = input->flag() ? input->u32() : input->u16();
    }
    line.flag.store(number | uint64_t{input->u32()} << 32);
  }

  void write_feedback(fuzz::Input* input) {
    Feedback& feedback = view().feedback(kMine);
    if (input->flag()) feedback.consumed.store(input->u16());
    if (input->flag()) feedback.consumed.store(input->u64());
    const int slot = input->below(transport::shm::kMaxSlots);
    feedback.released(slot).store(input->flag() ? input->u8() : input->u64());
  }

 private:
  SegmentLayout layout_;
  std::byte* bytes_;
};

class Reader {
 public:
  Reader(transport::Link* link, const PeerMemory* peer) : link_(link), peer_(peer) {}

  void receive() {
    Arrival arrival;
    for (int taken = 0; link_->receive(&arrival); ++taken) {
      fuzz::require(taken <= 64, "no more messages than lines");
      const size_t bytes = arrival.header.payload_bytes;
      fuzz::require(arrival.data != nullptr || bytes == 0, "a payload comes with its data");
      fuzz::require(bytes <= link_->max_payload(), "a bounded payload");
      fuzz::require(bytes <= transport::shm::kInlineBytes || peer_->holds(arrival.data, bytes),
                    "a payload in the line or in a slot");
      std::byte last{};
      if (bytes > 0) last = arrival.data[0] ^ arrival.data[bytes - 1];
      sum_ ^= std::to_integer<unsigned>(last);
      if (arrival.data != nullptr) held_.push_back(arrival.token);
    }
  }
  void release() {
    if (held_.empty()) return;
    link_->release(held_.front());
    held_.pop_front();
  }
  void send(fuzz::Input* input) {
    static const std::array<std::byte, transport::shm::kLargeSlotBytes> payload{};
    const size_t bytes = std::min<size_t>(input->u16(), payload.size());
    transport::Publication publication;
    for (int times = input->below(80); times >= 0 && link_->can_send(bytes); --times) {
      wire::Header header;
      header.payload_bytes = static_cast<uint32_t>(bytes);
      header.message_bytes = bytes;
      link_->send(header, payload.data(), input->flag() ? &publication : nullptr);
    }
  }

 private:
  transport::Link* link_;
  const PeerMemory* peer_;
  std::deque<uint64_t> held_;
  unsigned sum_ = 0;
};

void act(fuzz::Input* input, PeerMemory* memory, transport::Link* link, Reader* reader,
         posix::UniqueFd* socket, posix::Poller* poller) {
  uint32_t next = 1;
  while (!input->empty()) {
    switch (input->below(8)) {
      case 0: memory->write_line(input, next++); break;
      case 1: memory->write_line(input, input->u32()); break;
      case 2: memory->write_feedback(input); break;
      case 3: reader->receive(); break;
      case 4: reader->release(); break;
      case 5: reader->send(input); break;
      case 6:
        if (input->below(8) != 0) {
          fuzz::say(*socket, input->bytes(1));
        } else {
          socket->reset();
        }
        break;
      default: poller->poll(0); link->progress();
    }
    if (input->below(16) == 0) memory->view().header().sleeping.store(input->u8());
  }
  reader->receive();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  PeerMemory memory;
  transport::shm::SegmentOwner owner;
  owner.epoch = 3;
  owner.group = 7;
  owner.rank = kMine;
  owner.ranks = {kMine, kTheirs};
  auto poller = std::move(posix::Poller::create().value());
  fuzz::SocketPair sockets = fuzz::socket_pair();
  transport::shm::ShmLinkOptions options;
  options.segment = std::move(transport::shm::Segment::create(owner).value());
  options.peer = kTheirs;
  options.peer_name = "rank 1";
  options.peer_segment = memory.view();
  options.doorbell.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  options.socket = std::move(sockets.ours);
  options.poller = poller.get();
  auto link = transport::shm::ShmLink::create(std::move(options));
  fuzz::require(link.ok(), "a link");
  Reader reader(link->get(), &memory);
  act(&input, &memory, link->get(), &reader, &sockets.theirs, poller.get());
  const StatusCode code = (*link)->status().code();
  fuzz::require(
      code == StatusCode::kOk || code == StatusCode::kMismatch || code == StatusCode::kPeerLost,
      "a typed error");
  return 0;
}
