// SPDX-License-Identifier: Apache-2.0
// pairing.cc: all pairs of a rank at once, in one poll() loop, so that no order of ranks can lock.

#include "transport/shm/pairing.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <list>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "drivers/posix/fd_passing.h"
#include "drivers/posix/socket.h"
#include "security/admission.h"
#include "security/handshake.h"
#include "transport/shm/pair.h"
#include "transport/shm/shm_link.h"

namespace ciuic::transport::shm {

// A peer whose queue is full, or that turned us away when it was busy, is asked again after this.
static constexpr int kRetryMs = 5;

// So many connections may be unproven at once; then the oldest has to go.
static constexpr size_t kMaxUnproven = 2 * kMaxLocalRanks;

Result<UnixListener> listen_abstract() {
  Result<std::string> random = security::make_secret();
  if (!random.ok()) return random.status();
  UnixListener listener;
  listener.name = "ciuic-";
  for (size_t i = 0; i < 16; ++i) {
    listener.name += fmt::format("{:02x}", static_cast<unsigned char>((*random)[i]));
  }
  Result<posix::UniqueFd> fd = posix::listen_abstract(listener.name);
  if (!fd.ok()) return fd.status();
  listener.fd = std::move(*fd);
  return listener;
}

namespace {

class Pairing {
 public:
  Pairing(const PairingOptions& options, std::shared_ptr<Segment> segment)
      : options_(options), segment_(std::move(segment)) {
    for (const LocalPeer& peer : options.peers) {
      pairs_.emplace_back(segment_, peer.rank, options.poller->doorbell_fd());
    }
  }

  // Until all are settled, the deadline, or what the watch says.
  Status run();

  LocalLinks take_links();

 private:
  struct Unproven {
    posix::UniqueFd socket;
    HandshakeIo handshake;
    bool is_proven() const { return false; }  // then it goes on to its pair
    bool has_said_hello() const { return !handshake.peer().job.empty(); }
  };

  security::Identity identity() const;
  bool connects_to(const Pair& pair) const { return pair.peer() > options_.rank; }
  bool step();  // whether all are settled
  void connect(Pair* pair, const std::string& name);
  void accept_waiting();
  bool make_room();
  void prove_unproven();
  void wait(TimeNs now);

  const PairingOptions& options_;
  std::shared_ptr<Segment> segment_;
  std::vector<Pair> pairs_;
  std::list<Unproven> unproven_;  // oldest first
  int strangers_ = 0;
  std::vector<pollfd> polled_;
  size_t watched_ = 0;  // from there on they are the watch's
  bool retry_ = false;
  Status accepted_;  // how the last accept() ended
};

security::Identity Pairing::identity() const {
  security::Identity identity;
  identity.job = options_.job;
  identity.epoch = options_.epoch;
  identity.group = options_.group;
  identity.purpose = kLocalPairPurpose;
  return identity;
}

void Pairing::connect(Pair* pair, const std::string& name) {
  Result<posix::UniqueFd> socket = posix::connect_abstract(name);
  if (!socket.ok()) return pair->fail(socket.status());
  if (!socket->valid()) {
    retry_ = true;
    return;
  }
  security::Identity mine = identity();
  mine.from = options_.rank;
  mine.to = pair->peer();
  pair->connected(std::move(*socket), security::Handshake::connecting(options_.secret, mine));
}

// False: nobody can go.
bool Pairing::make_room() {
  const auto unproven = security::first_to_go(unproven_);
  if (unproven == unproven_.end()) return false;
  unproven_.erase(unproven);
  ++strangers_;
  return true;
}

void Pairing::accept_waiting() {
  const size_t most = security::most_unproven(kMaxUnproven);
  security::Identity mine = identity();
  mine.to = options_.rank;
  for (size_t taken = 0; taken < security::accepts_at_once(most); ++taken) {
    Result<posix::UniqueFd> socket = posix::accept_from(options_.listener);
    // No descriptor is free at this moment, most likely.
    if (!socket.ok() && make_room()) continue;
    accepted_ = socket.status();
    if (!socket.ok()) retry_ = true;
    if (!socket.ok() || !socket->valid()) return;
    if (unproven_.size() >= most) make_room();
    unproven_.push_back(
        {std::move(*socket), HandshakeIo(security::Handshake::accepting(options_.secret, mine))});
  }
}

void Pairing::prove_unproven() {
  for (auto next = unproven_.begin(); next != unproven_.end();) {
    const auto unproven = next++;
    Result<bool> done = unproven->handshake.progress(unproven->socket.get());
    if (done.ok() && !*done) continue;
    const security::Identity& peer = unproven->handshake.peer();
    const auto pair = std::find_if(pairs_.begin(), pairs_.end(), [&](const Pair& candidate) {
      return candidate.peer() == peer.from && !connects_to(candidate);
    });
    const bool wanted = done.ok() && peer.purpose == kLocalPairPurpose && pair != pairs_.end() &&
                        !pair->settled() && !pair->has_socket();
    if (wanted) {
      pair->proven(std::move(unproven->socket));
    } else {
      ++strangers_;
    }
    unproven_.erase(unproven);
  }
}

bool Pairing::step() {
  retry_ = false;
  accept_waiting();
  prove_unproven();
  bool all_settled = true;
  for (size_t i = 0; i < pairs_.size(); ++i) {
    Pair& pair = pairs_[i];
    if (!pair.settled() && !pair.has_socket() && connects_to(pair)) {
      connect(&pair, options_.peers[i].unix_name);
    }
    if (pair.has_socket()) pair.progress();
    if (!pair.settled() && !pair.has_socket() && connects_to(pair)) retry_ = true;
    all_settled = all_settled && pair.settled();
  }
  return all_settled;
}

void Pairing::wait(TimeNs now) {
  polled_.clear();
  // Who waits there for a descriptor is looked for again after kRetryMs, not without a pause.
  polled_.push_back({accepted_.ok() ? options_.listener : -1, POLLIN, 0});
  const auto add = [&](int fd, bool sending) {
    polled_.push_back({fd, static_cast<short>(sending ? POLLIN | POLLOUT : POLLIN), 0});
  };
  for (Unproven& unproven : unproven_) {
    add(unproven.socket.get(), unproven.handshake.is_sending());
  }
  for (Pair& pair : pairs_) {
    if (pair.has_socket() && !pair.settled()) add(pair.socket(), pair.is_sending());
  }
  watched_ = polled_.size();
  if (options_.watch != nullptr) options_.watch->add_to(&polled_);
  const int limit_ms = retry_ ? kRetryMs : 1000;
  ::poll(polled_.data(), polled_.size(), posix::poll_timeout_ms(options_.deadline, now, limit_ms));
}

Status Pairing::run() {
  while (true) {
    const TimeNs now = now_ns();
    if (step()) return {};
    if (now >= options_.deadline) break;
    if (options_.watch != nullptr) {
      CIUIC_RETURN_IF_ERROR(options_.watch->look(std::span(polled_).subspan(watched_)));
    }
    wait(now);
  }
  for (Pair& pair : pairs_) {
    const char* what = pair.has_socket() ? "did not answer" : "did not come to the Unix socket";
    pair.fail(Status(StatusCode::kTimeout,
                     fmt::format("rank {} {} in time{}", pair.peer(), what,
                                 security::while_unable_to_accept(
                                     fmt::format("rank {}", options_.rank), accepted_))));
  }
  return {};
}

LocalLinks Pairing::take_links() {
  LocalLinks result;
  result.strangers = strangers_;
  for (Pair& pair : pairs_) {
    LocalLink& local = result.links.emplace_back();
    local.rank = pair.peer();
    local.reason = pair.reason();
    if (!local.reason.ok()) continue;
    Pair::Outcome outcome = pair.take_outcome();
    ShmLinkOptions link;
    link.segment = segment_;
    link.peer = pair.peer();
    link.peer_name = fmt::format("rank {}", pair.peer());
    link.peer_segment = outcome.view;
    link.mapping = std::move(outcome.mapping);
    link.doorbell = std::move(outcome.doorbell);
    link.socket = std::move(outcome.socket);
    link.poller = options_.poller;
    Result<std::unique_ptr<ShmLink>> made = ShmLink::create(std::move(link));
    if (made.ok()) {
      local.link = std::move(*made);
      result.segment = segment_;
    } else {
      local.reason = made.status();
    }
  }
  return result;
}

}  // namespace

Result<LocalLinks> connect_local_peers(const PairingOptions& options) {
  if (options.peers.empty()) return LocalLinks{};
  CIUIC_ASSERT(options.poller != nullptr);
  SegmentOwner owner;
  owner.epoch = options.epoch;
  owner.group = options.group;
  owner.rank = options.rank;
  owner.ranks.push_back(options.rank);
  for (const LocalPeer& peer : options.peers) owner.ranks.push_back(peer.rank);
  std::sort(owner.ranks.begin(), owner.ranks.end());
  if (std::adjacent_find(owner.ranks.begin(), owner.ranks.end()) != owner.ranks.end()) {
    return Status(StatusCode::kInvalidArgument, "a rank is twice among the local peers");
  }
  Result<std::shared_ptr<Segment>> segment = Segment::create(owner, options.pool);
  if (segment.status().code() == StatusCode::kInvalidArgument) return segment.status();
  // Without memory for a segment the peers are told so, who would wait for this rank.
  Pairing pairing(options, segment.ok() ? *segment : nullptr);
  const Status ended = pairing.run();
  if (!segment.ok()) return segment.status();
  if (!ended.ok()) return ended;
  return pairing.take_links();
}

}  // namespace ciuic::transport::shm
