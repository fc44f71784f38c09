// SPDX-License-Identifier: Apache-2.0
// shm_link.cc: lines and slots.
//
// Nothing that the peer wrote is believed: line numbers, lengths, slots and counters are checked
// after they were copied here, and the peer's segment is mapped read-only. A peer that writes
// nonsense ends the link; it cannot make this process read or write elsewhere.

#include "transport/shm/shm_link.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "drivers/posix/fd_passing.h"
#include "drivers/posix/socket.h"

namespace ciuic::transport::shm {

// A reader says so often how many lines it has consumed; a ring must not run dry in between.
static constexpr uint64_t kConsumedStep = 16;
static_assert(kConsumedStep * 2 <= kLines);

// Tokens: the slot and its generation, the number of a copy or of a borrowed payload, or nothing to
// release.
static constexpr uint64_t kNoToken = ~uint64_t{0};
static constexpr uint64_t kCopyToken = uint64_t{1} << 63;
static constexpr uint64_t kLentToken = uint64_t{1} << 62;
static constexpr int kSlotBits = 5;
static_assert(kMaxSlots <= 1 << kSlotBits);

// Publication::slot: the slot, and as many bits of its generation as an int holds. A publication
// lives for one step of a plan; the slot does not get 2^26 new contents meanwhile.
static int published(int slot, uint64_t generation) {
  return static_cast<int>(((generation << kSlotBits) & 0x7fffffff) | static_cast<uint64_t>(slot));
}

// Fetches a slot's lines for writing while the peer is still busy with the last one: they lie in
// the reader's cache, and the copy would wait for each.
static void prefetch_for_writing(const std::byte* data, size_t bytes) {
#if defined(__x86_64__)
  // gcc emits this for __builtin_prefetch only with -mprfchw; older CPUs take it as a no-op.
  for (size_t at = 0; at < bytes; at += 64) asm volatile("prefetchw %0" : : "m"(data[at]));
#else
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(data + at, 1, 3);
#endif
}
static constexpr size_t kPrefetchBytes = 4 * 1024;

// Between what is read or written and a word about it, where loads and stores of plain memory could
// still change places with that of the word.
static void keep_order() {
#if defined(__aarch64__)
  asm volatile("dmb ish" : : : "memory");
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the processor keeps it
#endif
}

ShmLink::ShmLink(ShmLinkOptions options)
    : options_(std::move(options)),
      own_index_(options_.segment->index_of(options_.segment->owner().rank)),
      peer_index_(options_.segment->index_of(options_.peer)),
      pid_(getpid()) {
  CIUIC_ASSERT(peer_index_ >= 0 && peer_index_ != own_index_);
  const SegmentView& own = options_.segment->view();
  const SegmentView& peer = options_.peer_segment;
  peer_ring_ = peer.ring(own_index_);
  own_ring_ = own.ring(peer_index_);
  peer_sleeping_ = &peer.header().sleeping;
  peer_feedback_ = &peer.feedback(own_index_);
  own_feedback_ = &own.feedback(peer_index_);
  options_.segment->slots().attach(peer_index_, peer_feedback_);
}

Result<std::unique_ptr<ShmLink>> ShmLink::create(ShmLinkOptions options) {
  posix::Poller* poller = options.poller;
  const int socket = options.socket.get();
  std::unique_ptr<ShmLink> link(new ShmLink(std::move(options)));
  CIUIC_RETURN_IF_ERROR(poller->add(socket, &link->ready_));
  return link;
}

ShmLink::~ShmLink() { close(); }

bool ShmLink::progress() {
  if (ready_.load(std::memory_order_relaxed) != 0) [[unlikely]]
    look_at_socket();
  if (lender_ != nullptr && open_) lender_->take_back_dropped();
  if (peer_gone_) [[unlikely]]
    finish_if_gone();
  return false;
}

void ShmLink::look_at_socket() {
  const uint32_t bits = ready_.exchange(0, std::memory_order_acq_rel);
  if ((bits & (posix::kReadable | posix::kHangUp)) != 0) read_notices();
}

// The socket carries notices about shared tensors, and one byte when the peer closes in good order.
// Then it ends.
void ShmLink::read_notices() {
  while (!closed_ && !peer_gone_ && status_.code() != StatusCode::kMismatch) {
    std::array<char, sizeof(Notice)> more;
    const Result<size_t> count = posix::receive_with_fds(options_.socket.get(), more.data(),
                                                         sizeof(Notice) - notice_.size(), &passed_);
    if (!count.ok()) {
      peer_gone_ = true;
      open_ = false;
      return;
    }
    if (*count == 0) return;
    notice_.append(more.data(), *count);
    if (notice_[0] == kGoodbye) {
      end_goodbye();
      notice_.clear();
    } else if (notice_.size() == sizeof(Notice)) {
      take_notice();
    }
  }
}

void ShmLink::take_notice() {
  Notice notice;
  std::memcpy(&notice, notice_.data(), sizeof notice);
  notice_.clear();
  posix::UniqueFd fd;
  if (!passed_.empty()) fd = std::move(passed_.front());
  passed_.clear();
  if (borrower_ == nullptr) borrower_ = std::make_unique<Borrower>(own_feedback_);
  if (!borrower_->take(notice, std::move(fd))) {
    fail(StatusCode::kMismatch, "sent a notice about shared tensors that cannot be");
  }
}

// The peer's last lines can still be taken; only then is it lost.
void ShmLink::finish_if_gone() {
  if (goodbye_ || closed_ || !status_.ok()) return;
  const Line& line = peer_ring_[next_receive_ % kLines];
  const auto number = static_cast<uint32_t>(line.flag.load(std::memory_order_acquire));
  if (number == static_cast<uint32_t>(next_receive_)) return;
  fail(StatusCode::kPeerLost, "is gone: its process has ended");
}

void ShmLink::end_goodbye() {
  goodbye_ = true;
  open_ = false;
  if (lender_ != nullptr) lender_->forget();  // it reads no more
}

void ShmLink::fail(StatusCode code, const std::string& what) {
  open_ = false;
  if (status_.ok()) status_ = Status(code, options_.peer_name + " " + what);
}

void ShmLink::ring_if(uint32_t bits) {
  if ((peer_sleeping_->load(std::memory_order_seq_cst) & bits) == 0) [[likely]]
    return;
  const uint64_t one = 1;
  // A full counter means that the bell is ringing already.
  [[maybe_unused]] const ssize_t put = ::write(options_.doorbell.get(), &one, sizeof one);
}

bool ShmLink::can_send(size_t payload_bytes) {
  const bool line = next_send_ - consumed_ <= kLines;
  const bool room =
      payload_bytes <= kInlineBytes || options_.segment->slots().has_free(payload_bytes);
  if (line && room && open_) [[likely]]
    return true;
  return find_space(payload_bytes);
}

bool ShmLink::find_space(size_t payload_bytes) {
  if (closed_ || !status_.ok()) return false;
  if (goodbye_) return true;  // send() drops what nobody reads any more
  if (peer_gone_) return false;
  SlotPool& slots = options_.segment->slots();
  do {
    const uint64_t consumed = peer_feedback_->consumed.load(std::memory_order_seq_cst);
    if (consumed < consumed_ || consumed >= next_send_) [[unlikely]] {
      fail(StatusCode::kMismatch,
           fmt::format("says it read {} of {} lines of shared memory", consumed, next_send_ - 1));
      return false;
    }
    consumed_ = consumed;
    const bool line = next_send_ - consumed_ <= kLines;
    if (line && (payload_bytes <= kInlineBytes || slots.find_free(payload_bytes))) return true;
  } while (options_.segment->want_space());
  return false;
}

void ShmLink::send(const wire::Header& header, const std::byte* payload, Publication* publication) {
  CIUIC_ASSERT(header.payload_bytes <= kLargeSlotBytes && header.message_bytes <= kMessageMask);
  ++sent_;
  if (!open_) [[unlikely]] {
    // It closed in good order. Credits and the like are of no use any more; data is missed there.
    if (wire::carries_payload(header.type) && header.type != wire::MessageType::kAbort)
      fail(StatusCode::kPeerLost, "has closed its communicator");
    return;
  }
  CIUIC_ASSERT(next_send_ - consumed_ <= kLines);
  if (header.payload_bytes <= kInlineBytes) {
    write_line(header, payload, -1);
    return;
  }
  if (header.payload_bytes > kMostCopiedBytes && lend(header, payload)) return;
  const int slot = slot_for(header, payload, publication);
  write_line(header, payload, slot);
  const int next = options_.segment->slots().next(header.payload_bytes);
  if (next >= 0) {
    prefetch_for_writing(options_.segment->view().slot(next),
                         std::min<size_t>(header.payload_bytes, kPrefetchBytes));
  }
}

// The slot that holds the payload: the published one, while its content is still the same.
int ShmLink::slot_for(const wire::Header& header, const std::byte* payload,
                      Publication* publication) {
  SlotPool& slots = options_.segment->slots();
  if (publication != nullptr && publication->owner == options_.segment.get()) {
    const int slot = publication->slot & ((1 << kSlotBits) - 1);
    if (publication->slot == published(slot, slots.generation(slot))) {
      slots.add_reader(slot, peer_index_);
      return slot;
    }
  }
  const int slot = slots.take(header.payload_bytes);
  std::memcpy(options_.segment->view().slot(slot), payload, header.payload_bytes);
  slots.add_reader(slot, peer_index_);
  if (publication != nullptr) {
    publication->owner = options_.segment.get();
    publication->slot = published(slot, slots.generation(slot));
  }
  return slot;
}

// False: the payload is no shared tensor's, or the peer cannot read it there.
bool ShmLink::lend(const wire::Header& header, const std::byte* payload) {
  OwnRegions* regions = options_.segment->regions();
  if (regions->version() == 0) return false;  // there never was a shared tensor
  if (lender_ == nullptr) {
    lender_ = std::make_unique<Lender>(regions, peer_feedback_, options_.socket.get());
  }
  const auto reference = lender_->lend(payload, header.payload_bytes, sent_);
  if (!reference) return false;
  Line& line = begin_line(header, kLent);
  line.payload.lent = *reference;
  end_line(line, header.fingerprint);
  return true;
}

// Sees what the peer has returned; where it has not all, a sleeper wants to hear of it.
void ShmLink::look_at_lent() {
  do {
    if (lender_->look()) continue;
    return fail(StatusCode::kMismatch, "says that it returned what was not lent to it");
  } while (lender_->has_lent() && options_.segment->want_space());
}

Line& ShmLink::begin_line(const wire::Header& header, uint64_t payload_code) {
  Line& line = own_ring_[next_send_ % kLines];
  line.sequence = header.sequence;
  line.chunk = header.chunk;
  line.acked = header.acked;
  line.step = header.step;
  line.type = static_cast<uint8_t>(header.type);
  if (lender_ != nullptr && lender_->take_has_told()) line.type |= kLookAtSocket;
  line.lane = header.lane;
  line.bytes = header.message_bytes | payload_code << kPayloadShift;
  return line;
}

void ShmLink::write_line(const wire::Header& header, const std::byte* payload, int slot) {
  Line& line = begin_line(header, slot >= 0 ? kInSlot : header.payload_bytes);
  if (slot >= 0) {
    line.payload.reference = {options_.segment->slots().generation(slot),
                              static_cast<uint32_t>(slot), header.payload_bytes};
  } else if (header.payload_bytes > 0) {
    std::memcpy(line.payload.inlined.data(), payload, header.payload_bytes);
  }
  end_line(line, header.fingerprint);
}

void ShmLink::end_line(Line& line, uint32_t fingerprint) {
  const uint64_t number = static_cast<uint32_t>(next_send_);
  line.flag.store(number | uint64_t{fingerprint} << 32, std::memory_order_seq_cst);
  ++next_send_;
  ring_if(kSleeps);
}

bool ShmLink::receive(Arrival* arrival) {
  const Line& line = peer_ring_[next_receive_ % kLines];
  const uint64_t flag = line.flag.load(std::memory_order_seq_cst);
  if (static_cast<uint32_t>(flag) != static_cast<uint32_t>(next_receive_)) {
    if (lender_ != nullptr && lender_->has_lent()) look_at_lent();
    return peer_gone_ && receive_end(arrival);
  }
  if (closed_ || status_.code() == StatusCode::kMismatch) [[unlikely]]
    return false;
  if (free_copies_ == 0) [[unlikely]]
    return false;
  if ((line.type & kLookAtSocket) != 0) [[unlikely]]
    read_notices();
  if (!read_line(line, static_cast<uint32_t>(flag >> 32), arrival)) [[unlikely]]
    return false;
  ++next_receive_;
  if ((next_receive_ - 1) % kConsumedStep == 0) {
    own_feedback_->consumed.store(next_receive_ - 1, std::memory_order_seq_cst);
    ring_if(kWantsSpace);
  }
  return true;
}

// No more lines come. Where the peer's ring was full when it closed, its goodbye came only over the
// socket.
bool ShmLink::receive_end(Arrival* arrival) {
  finish_if_gone();
  if (!goodbye_ || goodbye_received_ || closed_ || !status_.ok()) return false;
  goodbye_received_ = true;
  *arrival = Arrival{};
  arrival->header.type = wire::MessageType::kGoodbye;
  arrival->header.epoch = options_.segment->owner().epoch;
  arrival->header.group = options_.segment->owner().group;
  arrival->token = kNoToken;
  return true;
}

bool ShmLink::read_line(const Line& line, uint32_t fingerprint, Arrival* arrival) {
  const uint64_t bytes = line.bytes;
  const uint8_t type = line.type & static_cast<uint8_t>(~kLookAtSocket);
  const Line::SlotReference reference = line.payload.reference;
  const Line::LentReference lent = line.payload.lent;
  // What is checked below must be what is used: no second read of what the peer could change.
  std::atomic_signal_fence(std::memory_order_seq_cst);

  wire::Header& header = arrival->header;
  header.type = static_cast<wire::MessageType>(type);
  header.lane = line.lane;
  header.step = line.step;
  header.epoch = options_.segment->owner().epoch;
  header.group = options_.segment->owner().group;
  header.sequence = line.sequence;
  header.fingerprint = fingerprint;
  header.chunk = line.chunk;
  header.acked = line.acked;
  header.message_bytes = bytes & kMessageMask;
  if (type < static_cast<uint8_t>(wire::MessageType::kData) ||
      type > static_cast<uint8_t>(wire::kLastMessageType)) [[unlikely]] {
    fail(StatusCode::kMismatch, fmt::format("wrote a shared-memory line of unknown type {}", type));
    return false;
  }
  if (header.type == wire::MessageType::kGoodbye) [[unlikely]] {
    end_goodbye();
    goodbye_received_ = true;
  }

  const uint64_t payload_code = bytes >> kPayloadShift;
  if (payload_code != 0 && !wire::carries_payload(header.type)) [[unlikely]] {
    fail(
        StatusCode::kMismatch,
        fmt::format("wrote a shared-memory line of type {}, which has no payload, with one", type));
    return false;
  }
  arrival->borrowed = payload_code == kLent;
  if (payload_code == kLent) return borrow(lent, arrival);
  if (payload_code == kInSlot) {
    if (reference.slot >= static_cast<uint32_t>(options_.peer_segment.layout().slot_count()) ||
        reference.payload_bytes > slot_bytes(static_cast<int>(reference.slot))) [[unlikely]] {
      fail(StatusCode::kMismatch,
           fmt::format("wrote a shared-memory line that names slot {} with {} bytes",
                       reference.slot, reference.payload_bytes));
      return false;
    }
    header.payload_bytes = reference.payload_bytes;
    arrival->data = options_.peer_segment.slot(static_cast<int>(reference.slot));
    arrival->token =
        (reference.generation << kSlotBits | reference.slot) & ~(kCopyToken | kLentToken);
    return true;
  }
  if (payload_code > kInlineBytes) [[unlikely]] {
    fail(StatusCode::kMismatch,
         fmt::format("wrote a shared-memory line of {} bytes", payload_code));
    return false;
  }
  header.payload_bytes = static_cast<uint32_t>(payload_code);
  arrival->data = nullptr;
  arrival->token = kNoToken;
  if (payload_code > 0) {
    const int copy = std::countr_zero(free_copies_);
    free_copies_ &= free_copies_ - 1;
    copies_[static_cast<size_t>(copy)].bytes = line.payload.inlined;
    arrival->data = copies_[static_cast<size_t>(copy)].bytes.data();
    arrival->token = kCopyToken | static_cast<uint64_t>(copy);
  }
  return true;
}

bool ShmLink::borrow(const Line::LentReference& reference, Arrival* arrival) {
  uint64_t number = 0;
  const std::byte* data = borrower_ == nullptr ? nullptr : borrower_->borrow(reference, &number);
  if (data == nullptr) {
    fail(StatusCode::kMismatch,
         fmt::format("wrote a shared-memory line that names {} bytes at {} of shared tensor {}",
                     reference.payload_bytes, reference.offset, reference.place));
    return false;
  }
  arrival->header.payload_bytes = reference.payload_bytes;
  arrival->data = data;
  arrival->token = kLentToken | number;
  return true;
}

void ShmLink::place(std::byte* /*destination*/) {
  CIUIC_ASSERT(false);  // every payload came with its data
}

void ShmLink::release(uint64_t token) {
  if (token == kNoToken || closed_) return;
  if ((token & kCopyToken) != 0) {
    free_copies_ |= uint64_t{1} << (token & 63);
    return;
  }
  if ((token & kLentToken) != 0) {
    if (borrower_->give_back(token & ~kLentToken)) ring_if(kWantsSpace);
    return;
  }
  const int slot = static_cast<int>(token & ((1 << kSlotBits) - 1));
  own_feedback_->released(slot).store(token >> kSlotBits, std::memory_order_seq_cst);
  ring_if(kWantsSpace);
}

// The peer says that it withdrew before it lets its user write to the tensors.
bool ShmLink::is_intact(uint64_t token) {
  if (token == kNoToken || (token & kCopyToken) != 0 || (token & kLentToken) == 0) return true;
  keep_order();
  return options_.peer_segment.header().withdrawn.load(std::memory_order_seq_cst) == 0;
}

void ShmLink::withdraw_lent() {
  look_at_lent();
  if (!lender_->has_lent()) return;
  options_.segment->view().header().withdrawn.store(1, std::memory_order_seq_cst);
  keep_order();
  lender_->forget();
}

void ShmLink::close() {
  if (closed_) return;
  if (getpid() != pid_) {
    // A forked child shares memory, socket and epoll with its parent: it may only let go.
    closed_ = true;
    open_ = false;
    return;
  }
  if (lender_ != nullptr && lender_->has_lent()) withdraw_lent();
  if (!peer_gone_ && status_.ok()) {
    if (open_ && can_send(0)) {
      wire::Header goodbye;
      goodbye.type = wire::MessageType::kGoodbye;
      write_line(goodbye, nullptr, -1);
    }
    [[maybe_unused]] const Result<size_t> sent =

        posix::send_some(options_.socket.get(), &kGoodbye, 1);  // where the ring was full
  }
  closed_ = true;
  open_ = false;
  if (borrower_ != nullptr) borrower_->close();
  options_.segment->slots().detach(peer_index_);
  options_.poller->remove(options_.socket.get());
  ::shutdown(options_.socket.get(), SHUT_RDWR);  // also where a forked child holds it open
  options_.socket.reset();
  options_.doorbell.reset();
  // The mapping goes with the link: what receive() gave out may still be read until then.
}

}  // namespace ciuic::transport::shm
