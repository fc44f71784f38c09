// SPDX-License-Identifier: Apache-2.0
// point_to_point.h: sends and receives between two ranks of a group. Inner to the engine.
//
// A receive takes the first message that has come, or will come, from its source with its tag; of
// one sender's messages with one tag, in the order of the sends. Messages of other tags, and the
// group's collective operations, are not in each other's way.
//
//   small   (at most kEagerBytes) go at once, while the receiver has room: it holds kRoom of each
//           sender that nobody has asked for, and says when room has become free.
//   others  are offered by a header alone; their bytes go when a receive has accepted the offer,
//           and so straight to their destination.
// Hence a receiver always reads, in whatever order it asks; what it holds for a sender is bounded
// but for the headers of offers, each of which keeps a send waiting at the sender.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/chunk.h"
#include "engine/engine.h"

namespace ciuic::engine {

inline constexpr int kRoom = 16;
inline constexpr size_t kMostOffers = 1 << 20;  // of one sender, unanswered

// A send or receive that has not ended.
struct Transfer {
  Request request;
  WorkState* work = nullptr;
  TimeNs called_at = 0;
  uint32_t call = 0;  // which of this rank's sends and receives
};

struct Sending : Transfer {
  uint32_t number = 0;
  bool is_accepted = false;  // its bytes may go
  uint32_t chunks = 0;
  uint32_t started = 0;  // chunks given to the link
  uint32_t done = 0;     // chunks whose bytes the link no longer needs
};

struct Receiving : Transfer {
  int peer = -1;  // whose message it has taken; -1: none yet
  uint32_t number = 0;
  uint32_t chunks = 0;  // that have come
  size_t bytes = 0;     // the same
};

// A message, or the offer of one, that nobody has asked for yet.
struct Unasked {
  int peer = 0;
  wire::Header header;
  Chunk chunk;  // a message's bytes, staged
};

// What this rank and one peer have with each other.
struct Exchange {
  uint32_t next_send = 0;     // number of the next send
  uint32_t next_arrival = 0;  // and of the next message or offer from there
  std::deque<std::unique_ptr<Sending>> sends;
  size_t shown = 0;             // of the sends, the first so many: as messages or offers
  std::deque<Sending*> wanted;  // of those, accepted ones whose bytes have not all been given away
  int room = kRoom;             // there, for small messages
  int freed = 0;                // here, that it has not been told of
  int held = 0;                 // small messages from there among PointToPoint::unasked
  size_t offers = 0;
  std::vector<std::unique_ptr<Receiving>> accepted;
  std::unique_ptr<Receiving> placing;  // whose bytes the link is reading
};

struct PointToPoint {
  std::vector<Exchange> peers;                    // by rank
  std::deque<std::unique_ptr<Receiving>> posted;  // not matched, in the order of the calls
  std::deque<Unasked> unasked;                    // in the order of arrival
  uint32_t next_call = 0;
  int sends = 0;  // that have not ended
  int receives = 0;

  int unended() const { return sends + receives; }
};

// Takes a send or receive, whose peer is a rank of the group.
void post(Group& group, Request request, WorkState* work, TimeNs now);

// Sends what can be sent. Returns whether anything moved.
bool run_sends(Group& group);

// The link no longer needs a chunk of the send.
void retire_send(Group& group, int peer, uint32_t number);

// A message of one of the point-to-point types, whose bytes were not placed.
void take_message(Group& group, int peer, const wire::Header& header, Chunk chunk);

// Where the payload that waits in the link shall go; null: no receive waits for it.
std::byte* place_message(Group& group, int peer, const wire::Header& header);
void message_placed(Group& group, int peer, const wire::Header& header);

constexpr bool is_point_to_point(wire::MessageType type) {
  return type >= wire::MessageType::kMessage;
}

// Ends all with the group's status.
void end_messages(Group& group);

// Between the two files: the newest posted receive looks at what has come; a receive has all its
// bytes; an offer was accepted (false: there is none); this rank's own send is received.
void match_posted(Group& group);
void finish(Group& group, std::unique_ptr<Receiving> receive);
bool accept_send(Group& group, int peer, uint32_t number);
void copy_own(Group& group, uint32_t number, std::byte* target);

// The call of the oldest that has not ended; kNever: none.
TimeNs oldest_message(const Group& group);

// Whether one that has not ended needs a peer that is gone.
bool find_lost_message(const Group& group, Cause* cause);

// Whether one is past its deadline. Lowers `next` to the earliest deadline of all.
bool find_late_message(const Group& group, TimeNs now, TimeNs* next, Cause* cause);

}  // namespace ciuic::engine
