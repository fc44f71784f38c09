// SPDX-License-Identifier: Apache-2.0
// message_matching.cc: what arrives between two ranks meets the receive that waits for it.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ciuic/call.h"
#include "engine/group.h"
#include "engine/point_to_point.h"

namespace ciuic::engine {

static void report_wrong(Group& group, int peer, std::string what) {
  report(group, {.status = {StatusCode::kMismatch, std::move(what)}, .about = peer});
}

static void report_nonsense(Group& group, int peer, const char* what) {
  report_wrong(group, peer, fmt::format("rank {} sent rank {} {}", peer, group.config.rank, what));
}

static int32_t tag_of(const wire::Header& header) {
  return static_cast<int32_t>(header.fingerprint);
}

// Tags above those of users are the library's, which never asks for any.
static bool is_for(const Receiving& receive, int peer, const wire::Header& header) {
  const Request& request = receive.request;
  const int32_t tag = tag_of(header);
  return (request.peer < 0 || request.peer == peer) &&
         (request.tag < 0 ? tag <= kMaxTag : request.tag == tag);
}

// Whether both ends speak of the same elements; else the group has failed.
static bool is_alike(Group& group, const Receiving& receive, int peer, const wire::Header& header) {
  const Request& request = receive.request;
  const auto dtype = static_cast<DataType>(header.step);
  const size_t size = size_of(dtype);
  if (dtype == request.dtype && header.message_bytes == request.count * size) return true;
  const std::string sent =
      size == 0 ? fmt::format("{} bytes of an unknown dtype", header.message_bytes)
                : fmt::format("{} {} elements", header.message_bytes / size, name_of(dtype));
  report_wrong(group, peer,
               fmt::format("rank {} sends rank {} {} with tag {}, where rank {} receives {} {} "
                           "elements. Both must have the same dtype and count.",
                           peer, group.config.rank, sent, tag_of(header), group.config.rank,
                           request.count, name_of(request.dtype)));
  return false;
}

// The first posted receive for the message; the number of posted ones where there is none.
static size_t find_posted(const PointToPoint& messages, int peer, const wire::Header& header) {
  size_t index = 0;
  while (index < messages.posted.size() && !is_for(*messages.posted[index], peer, header)) ++index;
  return index;
}

static std::unique_ptr<Receiving> take_posted(Group& group, size_t index, int peer,
                                              const wire::Header& header) {
  auto& posted = group.messages.posted;
  std::unique_ptr<Receiving> receive = std::move(posted[index]);
  posted.erase(posted.begin() + static_cast<int64_t>(index));
  receive->peer = peer;
  receive->number = header.sequence;
  receive->request.tag = tag_of(header);
  return receive;
}

// A small message has been used up: there is room for one more.
static void free_room(Group& group, int peer) {
  Exchange& with = group.messages.peers[peer];
  if (++with.freed < kRoom / 2) return;
  wire::Header room = control(group, wire::MessageType::kRoom, with.next_arrival);
  room.chunk = static_cast<uint32_t>(std::exchange(with.freed, 0));
  group.peers[peer].control.push(room);
}

// The posted receive number `index` takes the message, whose bytes are here if it is a small one.
static void meet(Group& group, size_t index, int peer, const wire::Header& header, Chunk chunk) {
  std::unique_ptr<Receiving> receive = take_posted(group, index, peer, header);
  std::byte* target = receive->request.output;
  if (peer == group.config.rank) {
    copy_own(group, header.sequence, target);
    return finish(group, std::move(receive));
  }
  if (header.type == wire::MessageType::kMessage) {
    if (header.payload_bytes > 0) std::memcpy(target, chunk.data, header.payload_bytes);
    release(group, peer, &chunk);
    free_room(group, peer);
    return finish(group, std::move(receive));
  }
  group.peers[peer].control.push(control(group, wire::MessageType::kAccept, header.sequence));
  if (header.message_bytes == 0) return finish(group, std::move(receive));
  group.messages.peers[peer].accepted.push_back(std::move(receive));
}

void match_posted(Group& group) {
  PointToPoint& messages = group.messages;
  const size_t last = messages.posted.size() - 1;
  for (size_t i = 0; i < messages.unasked.size(); ++i) {
    if (!is_for(*messages.posted[last], messages.unasked[i].peer, messages.unasked[i].header)) {
      continue;
    }
    const Unasked message = messages.unasked[i];
    if (!is_alike(group, *messages.posted[last], message.peer, message.header)) return;
    messages.unasked.erase(messages.unasked.begin() + static_cast<int64_t>(i));
    Exchange& with = messages.peers[message.peer];
    if (message.header.type == wire::MessageType::kMessage) {
      --with.held;
    } else {
      --with.offers;
    }
    return meet(group, last, message.peer, message.header, message.chunk);
  }
}

// Whether a message or an offer may be the next from there; else the group has failed.
static bool is_next(Group& group, int peer, const wire::Header& header) {
  if (group.messages.peers.empty()) group.messages.peers.resize(group.peers.size());
  const Exchange& with = group.messages.peers[peer];
  const bool small = header.type == wire::MessageType::kMessage;
  if (header.sequence != with.next_arrival || tag_of(header) < 0) {
    report_nonsense(group, peer, "a message out of turn");
    return false;
  }
  if (small && (header.payload_bytes != header.message_bytes ||
                header.payload_bytes > kEagerBytes || with.held == kRoom)) {
    report_nonsense(group, peer, "a message for which there was no room");
    return false;
  }
  if (!small && with.offers == kMostOffers) {
    report_nonsense(group, peer, "too many offers");
    return false;
  }
  return true;
}

static void take_new(Group& group, int peer, const wire::Header& header, Chunk chunk) {
  if (!is_next(group, peer, header)) return release(group, peer, &chunk);
  if (chunk.borrowed && !stage(group, peer, &chunk)) return;
  PointToPoint& messages = group.messages;
  Exchange& with = messages.peers[peer];
  ++with.next_arrival;
  const size_t index = find_posted(messages, peer, header);
  if (index < messages.posted.size()) {
    if (!is_alike(group, *messages.posted[index], peer, header)) {
      return release(group, peer, &chunk);
    }
    return meet(group, index, peer, header, chunk);
  }
  if (!stage(group, peer, &chunk)) return;
  if (header.type == wire::MessageType::kMessage) {
    ++with.held;
  } else {
    ++with.offers;
  }
  messages.unasked.push_back({peer, header, chunk});
}

// The receive whose next chunk this is; null: the group has failed.
static Receiving* find_accepted(Group& group, int peer, const wire::Header& header) {
  if (!group.messages.peers.empty()) {
    for (const auto& receive : group.messages.peers[peer].accepted) {
      if (receive->number != header.sequence) continue;
      const size_t whole = receive->request.count * size_of(receive->request.dtype);
      if (header.chunk == receive->chunks && header.message_bytes == whole &&
          header.payload_bytes > 0 && header.payload_bytes <= whole - receive->bytes) {
        return receive.get();
      }
    }
  }
  report_nonsense(group, peer, "a part of a message that was not accepted");
  return nullptr;
}

static void part_done(Group& group, int peer, Receiving* receive, size_t bytes) {
  ++receive->chunks;
  receive->bytes += bytes;
  if (receive->bytes < receive->request.count * size_of(receive->request.dtype)) return;
  auto& accepted = group.messages.peers[peer].accepted;
  const auto found = std::find_if(accepted.begin(), accepted.end(),
                                  [receive](const auto& held) { return held.get() == receive; });
  std::unique_ptr<Receiving> whole = std::move(*found);
  accepted.erase(found);
  finish(group, std::move(whole));
}

static void take_part(Group& group, int peer, const wire::Header& header, Chunk chunk) {
  if (Receiving* receive = find_accepted(group, peer, header)) {
    std::memcpy(receive->request.output + receive->bytes, chunk.data, header.payload_bytes);
    if (!is_intact(group, peer, chunk)) return;
    part_done(group, peer, receive, header.payload_bytes);
  }
  release(group, peer, &chunk);
}

static void take_room(Group& group, int peer, const wire::Header& header) {
  Exchange* with = group.messages.peers.empty() ? nullptr : &group.messages.peers[peer];
  if (with == nullptr || header.chunk > static_cast<uint32_t>(kRoom - with->room)) {
    return report_nonsense(group, peer, "more room than it has");
  }
  with->room += static_cast<int>(header.chunk);
}

void take_message(Group& group, int peer, const wire::Header& header, Chunk chunk) {
  switch (header.type) {
    case wire::MessageType::kMessage:
    case wire::MessageType::kOffer: return take_new(group, peer, header, chunk);
    case wire::MessageType::kPart: return take_part(group, peer, header, chunk);
    case wire::MessageType::kRoom: return take_room(group, peer, header);
    default: break;
  }
  if (group.messages.peers.empty() || !accept_send(group, peer, header.sequence)) {
    report_nonsense(group, peer, "an answer to an offer that was not made");
  }
}

std::byte* place_message(Group& group, int peer, const wire::Header& header) {
  if (header.type == wire::MessageType::kPart) {
    Receiving* receive = find_accepted(group, peer, header);
    return receive == nullptr ? nullptr : receive->request.output + receive->bytes;
  }
  if (!is_next(group, peer, header)) return nullptr;
  PointToPoint& messages = group.messages;
  const size_t index = find_posted(messages, peer, header);
  if (index == messages.posted.size()) return nullptr;
  if (!is_alike(group, *messages.posted[index], peer, header)) return nullptr;
  std::unique_ptr<Receiving>& placing = messages.peers[peer].placing;
  placing = take_posted(group, index, peer, header);
  return placing->request.output;
}

void message_placed(Group& group, int peer, const wire::Header& header) {
  Exchange& with = group.messages.peers[peer];
  if (header.type == wire::MessageType::kPart) {
    return part_done(group, peer, find_accepted(group, peer, header), header.payload_bytes);
  }
  ++with.next_arrival;
  free_room(group, peer);
  finish(group, std::move(with.placing));
}

}  // namespace ciuic::engine
