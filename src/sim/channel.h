// SPDX-License-Identifier: Apache-2.0
// channel.h: one direction of a simulated connection, its two halves used by two ranks.
//
// Messages stay in order within a channel; everything else about it is drawn from the seed. A
// channel also watches its users: what breaks the contract of transport::Link, such as a payload
// that changes before sent() counts it, goes to World::complain().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "sim/fault.h"
#include "sim/random.h"
#include "transport/link.h"

namespace ciuic::sim {

// What a channel knows of the rest of the simulation.
class World {
 public:
  virtual ~World() = default;
  virtual TimeNs now() const = 0;
  virtual void wake(int process, TimeNs at) = 0;  // something happens for this process then
  virtual void complain(const std::string& what) = 0;
  virtual void sending(int from, int to, const wire::Header& header) = 0;  // for a trace
};

// A fault planted in a channel, which a simulation must bring to light.
enum class Mutant : uint8_t {
  kNone = 0,
  kCompletionLost,    // sent() no longer counts
  kCompletionEarly,   // sent() counts what has yet to be read
  kMessageLost,       // one message is never delivered
  kMessageTwice,      // one message is delivered twice
  kMessagesSwapped,   // two messages change places
  kBytesWrong,        // one payload has a wrong bit
  kBlockWrong,        // one payload is that of an earlier message
  kPlacedEarly,       // a placed payload is called complete before its bytes are there
  kPayloadGone,       // the payload of an arrival is overwritten before its release
  kSlotReusedEarly,   // a shared slot is given to a new payload while readers still need it
  kCreditLost,        // one kCredit is never delivered
  kAnnouncementLost,  // one kAnnounce is never delivered
  kReleaseLost,       // one release() does nothing
};
inline constexpr int kMutants = 14;
const char* name_of(Mutant mutant);

struct ChannelOptions {
  TimeNs up_at = 0;          // when the connection is made
  TimeNs latency_min = 500;  // each message draws its own; none overtakes another
  TimeNs latency_max = 5000;
  int64_t ps_per_byte = 100;   // picoseconds on the wire: 100 is 10 GB/s
  size_t queue_messages = 8;   // that send() takes before the first has left
  TimeNs stall_from = kNever;  // nothing moves from here
  TimeNs stall_until = kNever;
  int refuse_percent = 0;  // can_send() says no for a while, for no reason

  // Byte streams.
  size_t socket_bytes = 65536;  // under way, or arrived and not read
  size_t inline_bytes = 0;      // payloads up to here come with data, not announced
  TimeNs completion_delay = 0;  // from the last byte's leaving to sent()

  Mutant mutant = Mutant::kNone;
  int mutant_after = 0;  // messages of the kind concerned that are spared
};

// One message of a process whose header is made to say what no call would.
struct Lie {
  BadMessage kind = BadMessage::kFingerprint;
  size_t spared = 0;  // messages of the kind concerned
  TimeNs told_at = kNever;
};

inline constexpr size_t kSimMaxPayload = 256 * 1024;

class Channel {
 public:
  Channel(World* world, int from, int to, const ChannelOptions& options, Random random);
  virtual ~Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // The sender's half.
  virtual bool push() = 0;  // what its progress() does; whether anything moved
  bool can_send(size_t payload_bytes);
  void send(const wire::Header& header, const std::byte* payload,
            transport::Publication* publication);
  virtual bool complete(TimeNs /*until*/) { return false; }  // counts what is sent by then
  virtual uint64_t sent() const = 0;
  void close_sender(const wire::Header& goodbye);

  // The receiver's half.
  virtual bool pull() = 0;  // what its progress() does; whether anything moved
  virtual bool has_arrivals() const = 0;
  virtual bool receive(transport::Arrival* arrival) = 0;
  virtual void place(std::byte* destination);
  void release(uint64_t token);
  virtual void close_receiver() = 0;
  size_t unreleased() const { return unreleased_; }
  void wake_sender(TimeNs at) { wake(from_, at, sender_busy_); }

  // Where to note until when something may move for either end, so that it need not look earlier
  // again; null: nowhere.
  void note_sender(TimeNs* busy_until) { sender_busy_ = busy_until; }
  void note_receiver(TimeNs* busy_until) { receiver_busy_ = busy_until; }
  TimeNs busy_at_first() const;

  bool is_up() const { return world_->now() >= up_at_; }

  // Nothing that has not arrived by then ever does.
  void cut(TimeNs at);
  bool is_cut() const { return world_->now() >= cut_at_; }

  // The same as of now, and nobody is told.
  void drop() {
    if (!dropped_) arrivals_until_ = std::min(arrivals_until_, world_->now());
    dropped_ = true;
  }

  // The sender's process is gone. What it had written still arrives, unless it `loses` that.
  void die(bool loses);
  bool has_died() const { return died_; }

  // The receiver's process is: a connection that is not up never will be.
  void reader_died() {
    if (!is_up()) up_at_ = kNever;
  }

  // When the receiver learns that the sender has closed, or has died; kNever while it has not.
  TimeNs end_at() const { return dropped_ && end_at_ > arrivals_until_ ? kNever : end_at_; }

  void set_lie(Lie* lie) { lie_ = lie; }

 protected:
  // A payload to be sent once more or later than it came has its bytes in `own`.
  struct Outgoing {
    wire::Header header;
    const std::byte* payload = nullptr;
    std::vector<std::byte> own;
    transport::Publication* publication = nullptr;
    bool counts = true;     // for sent()
    bool delivered = true;  // false: lost on the way
  };

  void wake_receiver(TimeNs at) { wake(to_, at, receiver_busy_); }

  virtual bool has_room(size_t payload_bytes) = 0;
  virtual void accept(Outgoing message) = 0;
  virtual void flush_and_end() = 0;  // what cannot leave now never does
  virtual void forget_unsent() {}    // what has not left never does
  virtual void released(uint64_t /*slot_use*/) {}

  // Copies a payload that the receiver may look at until it releases the token.
  void hand_out(transport::Arrival* arrival, const std::byte* payload, uint64_t slot_use);
  void spoil_handed_out();              // Mutant::kPayloadGone
  void release_all();                   // at the receiver's close
  bool is_mutant(Mutant mutant) const;  // it is this one, and its time has come
  bool can_move() const;                // up, not cut, not stalled
  TimeNs arrival_time(size_t bytes);    // of a message that leaves now
  void complain(const std::string& what);

  World* world_;
  const int from_;
  const int to_;
  const ChannelOptions options_;
  Random random_;
  TimeNs up_at_;
  TimeNs cut_at_ = kNever;
  TimeNs arrivals_until_ = kNever;  // what would arrive later never does
  TimeNs end_at_ = kNever;
  bool died_ = false;
  bool dropped_ = false;
  bool sender_closed_ = false;
  bool receiver_closed_ = false;

 private:
  struct HandedOut {
    std::vector<std::byte> bytes;
    uint64_t hash = 0;
    uint64_t slot_use = 0;
    bool used = false;
  };

  void wake(int process, TimeNs at, TimeNs* busy_until) {
    if (at == kNever) return;
    if (busy_until != nullptr) *busy_until = std::max(*busy_until, at);
    world_->wake(process, at);
  }
  bool mutate(Outgoing* message);  // whether it has been taken
  void tell_lie(Outgoing* message);

  TimeNs last_arrival_ = 0;
  TimeNs refuse_until_ = 0;
  bool said_yes_ = false;
  size_t yes_bytes_ = 0;
  int mutant_seen_ = 0;
  bool mutant_done_ = false;
  Lie* lie_ = nullptr;
  TimeNs* sender_busy_ = nullptr;
  TimeNs* receiver_busy_ = nullptr;
  std::unique_ptr<Outgoing> kept_;     // the first of two to be swapped, or an earlier payload
  std::vector<HandedOut> handed_out_;  // by token - 1
  size_t unreleased_ = 0;
};

uint64_t hash_of(const std::byte* data, size_t bytes);
void spoil(std::byte* data, size_t bytes, uint64_t seed);  // overwrites with garbage

}  // namespace ciuic::sim
