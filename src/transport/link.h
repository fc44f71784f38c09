// SPDX-License-Identifier: Apache-2.0
// link.h: what the engine asks of a connection to one peer process, the same for every transport.
//
// A link moves messages, whole and in order, in both directions. It never calls upward: the engine
// asks it. Nothing here blocks, but for close(). One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ciuic/status.h"
#include "wire/header.h"

namespace ciuic::transport {

// One payload that goes to several peers. The first link that sends it may leave a copy where its
// siblings find it: links of one shared segment then refer to one slot. Others ignore it.
struct Publication {
  const void* owner = nullptr;
  int slot = -1;
};

struct Arrival {
  wire::Header header;
  // The payload, valid until release(token). Null while a payload of header.payload_bytes > 0 has
  // not been read: the engine then says by place() where it shall go.
  const std::byte* data = nullptr;
  uint64_t token = 0;
  // The data lies in the sender's own memory: after its use is_intact() tells whether it counts.
  bool borrowed = false;
};

class Link {
 public:
  virtual ~Link() = default;

  virtual const char* transport() const = 0;  // "shm", "tcp", ...

  // The largest payload that one message may carry.
  virtual size_t max_payload() const = 0;

  // Does what input and output can be done now. Returns whether anything moved.
  virtual bool progress() = 0;

  // Ok, also while still connecting; else kPeerLost, kPermission or kSystem, for good, with a
  // message that begins with the peer, such as "rank 3 (host b) is gone". What had arrived before a
  // failure can still be received.
  virtual const Status& status() const = 0;

  // Whether send() of one message with `payload_bytes` is possible now. A link that is still
  // connecting says no, or queues.
  virtual bool can_send(size_t payload_bytes) = 0;

  // Sends one message, only after can_send() said yes. `payload` (header.payload_bytes of it) stays
  // untouched until sent() counts this call. `publication` may be null.
  virtual void send(const wire::Header& header, const std::byte* payload,
                    Publication* publication) = 0;

  // How many calls of send(), from the first on, no longer need their payload, since it is on its
  // way. What a link lost when it failed is never counted: its payload is free once close()
  // returns.
  virtual uint64_t sent() const = 0;

  // Takes the next message. False: none is there. A message whose data is null is only announced:
  // after place() it is returned once more, complete, by a later receive(); until then no other
  // message of this link is.
  virtual bool receive(Arrival* arrival) = 0;

  // Where the payload of the message that receive() announced shall go; the memory must stay until
  // it has arrived, or the link is closed.
  virtual void place(std::byte* destination) = 0;

  // The payload of an arrival that came with data (not placed) is no longer needed. Any order.
  virtual void release(uint64_t token) = 0;

  // Whether a borrowed payload, which was read just now, is what had been sent. No: the sender has
  // left the group meanwhile, and may have written to it.
  virtual bool is_intact(uint64_t /*token*/) { return true; }

  // The peer's process is gone, or has left the group, by what others say. A link that is not yet
  // connected never will be: it fails with `why` (kPeerLost). Another one learns by itself, after
  // all that the peer has sent.
  virtual void peer_gone(const Status& /*why*/) {}

  // Sends what waits and kGoodbye, and gives up memory, descriptors and placements. Where the peer
  // takes nothing at this moment, it waits a little: at most half a second for all of a group.
  virtual void close() = 0;

  // Bytes of buffers that this link holds, for memory_usage().
  virtual size_t buffer_bytes() const = 0;
};

}  // namespace ciuic::transport
