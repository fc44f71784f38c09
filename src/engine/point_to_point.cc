// SPDX-License-Identifier: Apache-2.0
// point_to_point.cc: sends, and how sends and receives end.

#include "engine/point_to_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "base/assert.h"
#include "ciuic/call.h"
#include "engine/group.h"

namespace ciuic::engine {

// Bytes of a chunk at most; the link may have a lower limit.
static constexpr size_t kPartBytes = 256 * 1024;

static size_t bytes_of(const Request& request) {
  return static_cast<size_t>(request.count) * size_of(request.dtype);
}

static std::string tag_text(int32_t tag) {
  if (tag > kMaxTag) return "the tag of a subgroup() or split()";
  return tag < 0 ? "any tag" : fmt::format("tag {}", tag);
}

// "send of 8 float32 elements to rank 1 with tag 3", as one that waits is spoken of.
static std::string text_of(const Request& request) {
  const bool sends = request.kind == RequestKind::kSend;
  const std::string peer = request.peer < 0 ? "any rank" : fmt::format("rank {}", request.peer);
  return fmt::format("{} of {} {} elements {} {} with {}", sends ? "send" : "recv", request.count,
                     name_of(request.dtype), sends ? "to" : "from", peer, tag_text(request.tag));
}

static void end_transfer(Group& group, int* count, const Transfer& ended, const Status& status) {
  --*count;
  --group.unended;
  group.config.trace.message_ended(ended.call, status.code());
  ended.work->finish(status);
  ended.work->release();
}

static void begin_transfer(Group& group, Transfer* begun, Request request, WorkState* work,
                           TimeNs now) {
  begun->request = std::move(request);
  begun->work = work;
  begun->called_at = now;
  begun->call = group.messages.next_call++;
  const Request& made = begun->request;
  group.config.trace.called({.operation = made.operation,
                             .starts_at_once = true,
                             .is_message = true,
                             .dtype = made.dtype,
                             .sequence = begun->call,
                             .fingerprint = static_cast<uint32_t>(made.tag),
                             .root = made.peer,
                             .count = made.count,
                             .bytes = bytes_of(made),
                             .called_at = now});
}

void finish(Group& group, std::unique_ptr<Receiving> receive) {
  receive->work->came_from(receive->peer, receive->request.tag);
  end_transfer(group, &group.messages.receives, *receive, Status());
}

static void erase_send(Group& group, Exchange* with, size_t index) {
  const std::unique_ptr<Sending> send = std::move(with->sends[index]);
  with->sends.erase(with->sends.begin() + static_cast<int64_t>(index));
  if (index < with->shown) --with->shown;
  end_transfer(group, &group.messages.sends, *send, Status());
}

// The sends are in the order of their numbers, some of which have ended. The number of sends where
// there is none.
static size_t find_send(const Exchange& with, uint32_t number) {
  const auto found = std::lower_bound(
      with.sends.begin(), with.sends.end(), number,
      [](const auto& send, uint32_t wanted) { return wire::before(send->number, wanted); });
  if (found == with.sends.end() || (*found)->number != number) return with.sends.size();
  return static_cast<size_t>(found - with.sends.begin());
}

static wire::Header header_of(const Group& group, wire::MessageType type, const Sending& send) {
  wire::Header header = control(group, type, send.number);
  header.fingerprint = static_cast<uint32_t>(send.request.tag);
  header.step = static_cast<uint16_t>(send.request.dtype);
  header.message_bytes = bytes_of(send.request);
  return header;
}

// Gives `bytes` of the message, from `offset` on, to the link, which takes them now.
static void give(Group& group, int peer, Sending* send, wire::MessageType type, size_t offset,
                 size_t bytes) {
  Peer& to = group.peers[peer];
  wire::Header header = header_of(group, type, *send);
  header.chunk = send->started++;
  header.payload_bytes = static_cast<uint32_t>(bytes);
  header.acked = group.lowest;
  to.link->send(header, send->request.input + offset, nullptr);
  ++to.sends;
  if (to.in_flight.empty() && to.link->sent() == to.sends) {
    ++send->done;
  } else {
    to.in_flight.push({to.sends, send->number, /*step=*/-1, /*place=*/0});
  }
}

static bool is_ready(const Sending& send) {
  return send.request.gate == nullptr || send.request.gate->is_open();
}

// Messages to this rank itself.
static bool show_own(Group& group) {
  const int own = group.config.rank;
  bool any = false;
  while (group.status.ok()) {  // a message that does not match ends the group, and all exchanges
    Exchange& with = group.messages.peers[own];
    if (with.shown == with.sends.size()) break;
    const Sending& send = *with.sends[with.shown];
    if (!is_ready(send)) break;
    ++with.shown;
    any = true;
    take_message(group, own, header_of(group, wire::MessageType::kOffer, send), {});
  }
  return any;
}

// Messages and offers, in the order of the calls.
static bool show(Group& group, int peer) {
  Exchange& with = group.messages.peers[peer];
  Peer& to = group.peers[peer];
  bool any = false;
  while (with.shown < with.sends.size()) {
    Sending& send = *with.sends[with.shown];
    if (!is_ready(send)) break;
    const size_t bytes = bytes_of(send.request);
    if (bytes <= kEagerBytes && with.room > 0) {
      if (!to.control.empty() || !to.link->can_send(bytes)) break;
      --with.room;
      send.chunks = 1;
      give(group, peer, &send, wire::MessageType::kMessage, 0, bytes);
    } else {
      to.control.push(header_of(group, wire::MessageType::kOffer, send));
    }
    any = true;
    ++with.shown;
    if (send.chunks > 0 && send.done == send.chunks) erase_send(group, &with, with.shown - 1);
  }
  return any;
}

static size_t most_of_part(const Peer& to) { return std::min(kPartBytes, to.link->max_payload()); }

static bool send_parts(Group& group, int peer, Sending* send) {
  Peer& to = group.peers[peer];
  const size_t most = most_of_part(to);
  const size_t bytes = bytes_of(send->request);
  bool any = false;
  while (send->started < send->chunks) {
    const size_t offset = send->started * most;
    const size_t part = std::min(most, bytes - offset);
    if (!to.control.empty() || !to.link->can_send(part)) break;
    give(group, peer, send, wire::MessageType::kPart, offset, part);
    any = true;
  }
  return any;
}

// Looks only at what is new, and at what may go: there may be many sends that nobody asks for.
static bool run_sends_to(Group& group, int peer) {
  Exchange& with = group.messages.peers[peer];
  Peer& to = group.peers[peer];
  if (with.sends.empty() || to.link == nullptr || to.gone) return false;
  bool any = show(group, peer);
  while (!with.wanted.empty()) {
    Sending& send = *with.wanted.front();
    any |= send_parts(group, peer, &send);
    if (send.started < send.chunks) break;
    with.wanted.pop_front();
    if (send.done == send.chunks) erase_send(group, &with, find_send(with, send.number));
  }
  return any;
}

bool run_sends(Group& group) {
  bool any = false;
  for (size_t rank = 0; rank < group.messages.peers.size(); ++rank) {
    const int peer = static_cast<int>(rank);
    any |= peer == group.config.rank ? show_own(group) : run_sends_to(group, peer);
  }
  return any;
}

void retire_send(Group& group, int peer, uint32_t number) {
  Exchange& with = group.messages.peers[peer];
  const size_t index = find_send(with, number);
  CIUIC_ASSERT(index < with.sends.size());  // it ends only after its chunks
  Sending& send = *with.sends[index];
  if (++send.done == send.chunks) erase_send(group, &with, index);
}

bool accept_send(Group& group, int peer, uint32_t number) {
  Exchange& with = group.messages.peers[peer];
  const size_t index = find_send(with, number);
  if (index >= with.shown) return false;
  Sending& send = *with.sends[index];
  if (send.is_accepted || send.chunks > 0) return false;
  const size_t most = most_of_part(group.peers[peer]);
  send.is_accepted = true;
  send.chunks = static_cast<uint32_t>((bytes_of(send.request) + most - 1) / most);
  with.wanted.push_back(&send);
  return true;
}

void copy_own(Group& group, uint32_t number, std::byte* target) {
  Exchange& with = group.messages.peers[group.config.rank];
  const size_t index = find_send(with, number);
  CIUIC_ASSERT(index < with.sends.size());
  const Request& request = with.sends[index]->request;
  // Also into the same memory, or memory that overlaps.
  if (request.count > 0) std::memmove(target, request.input, bytes_of(request));
  erase_send(group, &with, index);
}

void post(Group& group, Request request, WorkState* work, TimeNs now) {
  PointToPoint& messages = group.messages;
  if (messages.peers.empty()) messages.peers.resize(group.peers.size());
  work->retain();
  ++group.unended;
  group.next_deadline = std::min(group.next_deadline, request.deadline);
  group.checks_gone = group.any_gone;
  if (request.kind == RequestKind::kReceive) {
    ++messages.receives;
    messages.posted.push_back(std::make_unique<Receiving>());
    begin_transfer(group, messages.posted.back().get(), std::move(request), work, now);
    if (group.status.ok()) match_posted(group);
    return;
  }
  ++messages.sends;
  const int peer = request.peer;
  Exchange& with = messages.peers[peer];
  with.sends.push_back(std::make_unique<Sending>());
  Sending& send = *with.sends.back();
  begin_transfer(group, &send, std::move(request), work, now);
  send.number = with.next_send++;
  if (peer == group.config.rank) (void)show_own(group);
}

// Calls `look` with every transfer, its peer, and whether it was matched.
template <typename Look>
static void for_each_transfer(const PointToPoint& messages, Look look) {
  for (const auto& receive : messages.posted) look(*receive, receive->request.peer, false);
  for (size_t rank = 0; rank < messages.peers.size(); ++rank) {
    const Exchange& with = messages.peers[rank];
    const int peer = static_cast<int>(rank);
    for (const auto& receive : with.accepted) look(*receive, peer, true);
    if (with.placing != nullptr) look(*with.placing, peer, true);
    for (const auto& send : with.sends) look(*send, peer, send->is_accepted);
  }
}

void end_messages(Group& group) {
  PointToPoint messages = std::exchange(group.messages, PointToPoint());
  int count = messages.unended();
  for_each_transfer(messages, [&](const Transfer& transfer, int /*peer*/, bool /*is_matched*/) {
    end_transfer(group, &count, transfer, group.status);
  });
  for (Unasked& message : messages.unasked) {
    if (message.chunk.staged) {
      group.staging->give_back(const_cast<std::byte*>(message.chunk.data), message.chunk.bytes);
    }
  }
  CIUIC_ASSERT(count == 0);
}

TimeNs oldest_message(const Group& group) {
  TimeNs oldest = kNever;
  for_each_transfer(group.messages, [&](const Transfer& transfer, int, bool) {
    oldest = std::min(oldest, transfer.called_at);
  });
  return oldest;
}

// What keeps a request waiting.
static std::string why_it_waits(const Group& group, const Request& request, int peer,
                                bool is_matched) {
  const char* other = request.kind == RequestKind::kSend ? "recv" : "send";
  if (is_matched)
    return fmt::format("rank {} has called its {}, but the bytes are not all there", peer, other);
  const std::string who = peer < 0 ? "no rank" : fmt::format("rank {}", peer);
  if (request.kind == RequestKind::kSend) {
    return fmt::format("{} has not called a recv for it", who);
  }
  std::set<int> tags;
  for (const Unasked& message : group.messages.unasked) {
    const auto tag = static_cast<int32_t>(message.header.fingerprint);
    if (tag <= kMaxTag && (peer < 0 || message.peer == peer)) tags.insert(tag);
    if (tags.size() == 8) break;
  }
  std::string why =
      fmt::format("{} has {}sent with {}", who, peer < 0 ? "" : "not ", tag_text(request.tag));
  if (!tags.empty()) why += fmt::format(", but with tag {}", fmt::join(tags, ", "));
  return why;
}

bool find_late_message(const Group& group, TimeNs now, TimeNs* next, Cause* cause) {
  bool found = false;
  TimeNs latest = kNever;
  for_each_transfer(group.messages, [&](const Transfer& transfer, int peer, bool is_matched) {
    const Request& request = transfer.request;
    *next = std::min(*next, request.deadline);
    if (request.deadline > now || request.deadline >= latest) return;
    latest = request.deadline;
    found = true;
    *cause = {.status = {StatusCode::kTimeout,
                         fmt::format("{} (on rank {}) did not end within {} ms: {}. Look at what "
                                     "that rank does; timeout_ms (timeout_s in Python) allows more "
                                     "time.",
                                     text_of(request), group.config.rank, request.timeout_ms,
                                     why_it_waits(group, request, peer, is_matched))},
              .about = peer,
              .is_late = true};
  });
  return found;
}

// Whether a receive from any rank can still get what it waits for. A rank that is lost may have
// been the one; without those that left in good order, others may send.
static int lost_for_any(const Group& group) {
  int gone = -1;
  bool others = false;
  for (size_t rank = 0; rank < group.peers.size(); ++rank) {
    const Peer& peer = group.peers[rank];
    if (peer.link == nullptr) continue;
    if (!peer.gone) {
      others = true;
      continue;
    }
    gone = static_cast<int>(rank);
    if (!peer.link->status().ok()) return gone;
  }
  return others ? -1 : gone;
}

bool find_lost_message(const Group& group, Cause* cause) {
  bool found = false;
  for_each_transfer(group.messages, [&](const Transfer& transfer, int peer, bool /*is_matched*/) {
    if (found) return;
    const int lost = peer < 0 ? lost_for_any(group) : group.peers[peer].gone ? peer : -1;
    if (lost < 0) return;
    found = true;
    const Status& status = group.peers[lost].link->status();
    *cause = {
        .status = {status.ok() ? StatusCode::kPeerLost : status.code(),
                   status.ok() ? fmt::format("rank {} closed its communicator, while rank {} "
                                             "waited in {}",
                                             lost, group.config.rank, text_of(transfer.request))
                               : fmt::format("{}, while rank {} waited in {}", status.message(),
                                             group.config.rank, text_of(transfer.request))},
        .about = lost};
  });
  return found;
}

}  // namespace ciuic::engine
