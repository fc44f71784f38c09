// SPDX-License-Identifier: Apache-2.0
// prove.cc: every host's lowest rank dials every other's, and answers those that dial it.

#include "bootstrap/prove.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <map>

#include "bootstrap/bytes.h"
#include "bootstrap/dial.h"
#include "bootstrap/invitation.h"
#include "drivers/posix/socket.h"
#include "security/admission.h"

namespace ciuic::bootstrap {

static constexpr int64_t kOthersMs = 1'000;  // for a host's other addresses, once one has answered
static constexpr int64_t kProofMs = 10'000;  // for one who connects here
static constexpr size_t kMaxVisitors = 1'024;  // proven ones among them, until they close
static constexpr size_t kNoFrames = 0;
static constexpr int kMostTries = 40;  // some seconds, where a host hangs up each time

static security::Identity proof_identity(const Roll& roll, int from, int to) {
  security::Identity identity;
  identity.job = roll.job;
  identity.epoch = roll.epoch;
  identity.group = roll.group;
  identity.purpose = kProofPurpose;
  identity.from = from;
  identity.to = to;
  return identity;
}

// Answers those who dial this rank.
class Answering final : public Bystander {
 public:
  Answering(const Roll* roll, int rank, const std::vector<posix::UniqueFd>* listeners)
      : roll_(roll), rank_(rank), listeners_(listeners) {}

  void add_to(std::vector<pollfd>* fds) override {
    for (const posix::UniqueFd& listener : *listeners_) {
      fds->push_back({listener.get(), POLLIN, 0});
    }
    for (const Visitor& visitor : visitors_) {
      fds->push_back({visitor.channel.fd(), visitor.channel.events(), 0});
    }
  }

  void progress() override {
    for (const posix::UniqueFd& listener : *listeners_) accept_waiting(listener.get());
    const TimeNs now = now_ns();
    for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
      const auto next = std::next(visitor);
      const Status status = visitor->channel.progress();
      // The other side knows all it needs once it has been answered; it closes.
      const bool closed = status.code() == StatusCode::kPeerLost;
      if (!status.ok() || now >= visitor->deadline) go(visitor, !closed && !visitor->is_proven());
      visitor = next;
    }
  }

  uint64_t strangers() const { return strangers_; }
  const Status& accepted() const { return accepted_; }

 private:
  struct Visitor {
    Channel channel;
    TimeNs deadline;
    bool is_proven() const { return channel.proven(); }
    bool has_said_hello() const { return !channel.peer().job.empty(); }
  };

  void go(std::list<Visitor>::iterator visitor, bool is_stranger) {
    strangers_ += is_stranger ? 1 : 0;
    visitors_.erase(visitor);
  }

  bool make_room() {
    const auto visitor = security::first_to_go(visitors_);
    if (visitor == visitors_.end()) return false;
    go(visitor, true);
    return true;
  }

  void accept_waiting(int listener) {
    const size_t most = security::most_unproven(kMaxVisitors);
    for (size_t taken = 0; taken < security::accepts_at_once(most); ++taken) {
      Result<posix::UniqueFd> fd = posix::accept_from(listener);
      // No descriptor is free, most likely.
      if (!fd.ok() && make_room()) continue;
      accepted_ = fd.status();
      if (!fd.ok() || !fd->valid()) return;
      if (visitors_.size() >= most && !make_room()) continue;  // hangs up
      auto handshake =
          security::Handshake::accepting(roll_->secret, proof_identity(*roll_, -1, rank_));
      visitors_.push_back({Channel(std::move(*fd), std::move(handshake), kNoFrames),
                           deadline_after(now_ns(), kProofMs)});
    }
  }

  const Roll* roll_;
  int rank_;
  const std::vector<posix::UniqueFd>* listeners_;
  std::list<Visitor> visitors_;  // oldest first
  uint64_t strangers_ = 0;
  Status accepted_;  // how the last accept() ended
};

// One host that this one dials.
struct Dialed {
  int host = -1;
  Dial dial;
  TimeNs until = kNever;  // set once one address has answered
};

static std::vector<std::string> working(Dial* dial) {
  std::vector<std::string> texts;
  for (const Dial::Attempt& attempt : dial->attempts()) {
    if (attempt.proven()) texts.push_back(attempt.address.text);
  }
  return texts;
}

// Dials until every host has answered at an address, and the rest of its addresses had their time.
static Status dial_all(std::vector<Dialed>* dialed, Assembly* assembly, Answering* answering,
                       TimeNs deadline) {
  while (true) {
    const TimeNs now = now_ns();
    TimeNs next = deadline;
    bool over = true;
    std::vector<pollfd> fds;
    for (Dialed& host : *dialed) {
      host.dial.progress();
      if (host.dial.settled()) continue;
      if (host.until == kNever && host.dial.any_proven()) {
        host.until = deadline_after(now, kOthersMs);
      }
      if (now >= host.until) continue;
      over = false;
      next = std::min({next, host.until, host.dial.next_try()});
      host.dial.add_to(&fds);
    }
    if (over || now >= deadline) return {};
    answering->add_to(&fds);
    const size_t watched = fds.size();
    assembly->watch(&fds);
    CIUIC_RETURN_IF_ERROR(wait_for_any(&fds, next));
    answering->progress();
    CIUIC_RETURN_IF_ERROR(assembly->look(std::span(fds).subspan(watched)));
  }
}

// What this rank tells the others: for each host that it dialed, the addresses that work.
static Result<std::string> dial_from(Assembly* assembly, const std::vector<int>& leaders,
                                     Answering* answering, TimeNs deadline) {
  const Roll& roll = assembly->roll();
  const int rank = assembly->rank();
  const Card& mine = roll.cards[static_cast<size_t>(rank)];
  std::vector<Dialed> dialed;
  for (size_t host = 0; host < leaders.size(); ++host) {
    if (leaders[host] == rank) continue;
    const Card& other = roll.cards[static_cast<size_t>(leaders[host])];
    dialed.push_back(
        {static_cast<int>(host),
         Dial(reachable(mine.machine_id, other.machine_id, other.addresses, other.loopback),
              roll.secret, proof_identity(roll, rank, other.rank), kNoFrames),
         kNever});
    dialed.back().dial.ask_again(kMostTries);
  }
  CIUIC_RETURN_IF_ERROR(dial_all(&dialed, assembly, answering, deadline));
  ByteWriter out;
  for (Dialed& host : dialed) {
    const std::vector<std::string> texts = working(&host.dial);
    const Card& other = roll.cards[static_cast<size_t>(leaders[static_cast<size_t>(host.host)])];
    if (texts.empty() && host.dial.attempts().empty()) {
      return Status(StatusCode::kPeerLost,
                    fmt::format("host {} cannot reach host {} ({}): it has no address that other "
                                "hosts could reach; `ip address` and CIUIC_SOCKET_IFNAME there say "
                                "why",
                                mine.host_name, other.host_name, other.who()));
    }
    if (texts.empty()) {
      return Status(StatusCode::kPeerLost,
                    fmt::format("host {} cannot reach host {} ({}): {}", mine.host_name,
                                other.host_name, other.who(), host.dial.failures()));
    }
    out.u32(static_cast<uint32_t>(host.host)).u32(static_cast<uint32_t>(texts.size()));
    for (const std::string& text : texts) out.text(text);
  }
  return out.take();
}

// Reads what one host told, into its row.
static Status read_row(const std::string& bytes, std::vector<std::vector<std::string>>* row) {
  ByteReader in(bytes);
  for (size_t i = 0; i + 1 < row->size(); ++i) {
    const uint32_t host = in.u32();
    std::vector<std::string> texts(in.count(4, 64));
    for (std::string& text : texts) text = in.text(256);
    if (in.failed() || host >= row->size()) break;
    (*row)[host] = std::move(texts);
  }
  if (in.complete()) return {};
  return Status(StatusCode::kInvalidArgument, "a host's list of addresses cannot be read");
}

Result<Reachable> prove_addresses(Assembly* assembly, const std::vector<posix::UniqueFd>& listeners,
                                  TimeNs deadline) {
  Reachable result;
  result.roll_ = assembly->roll();
  const Roll& roll = result.roll_;
  std::map<std::string, int> hosts;
  std::vector<int> leaders;  // by host, the lowest rank
  for (const Card& card : roll.cards) {
    const auto [host, added] = hosts.try_emplace(card.host_id, static_cast<int>(hosts.size()));
    if (added) leaders.push_back(card.rank);
    result.host_of_.push_back(host->second);
  }
  if (leaders.size() == 1) return result;
  const int rank = assembly->rank();
  Answering answering(&roll, rank, &listeners);
  const bool leads = std::find(leaders.begin(), leaders.end(), rank) != leaders.end();
  Result<std::string> mine = std::string();
  if (leads) {
    // What fails at the deadline must still be told to all.
    mine = dial_from(assembly, leaders, &answering,
                     answer_by(answer_by(deadline, now_ns()), now_ns()));
  }
  // Others may still be dialing this rank while it waits for them.
  Result<std::vector<std::string>> told = assembly->gather(mine, deadline, &answering);
  assembly->count_strangers(answering.strangers());
  if (!told.ok()) {
    const std::string outside = security::while_unable_to_accept(
        roll.cards[static_cast<size_t>(rank)].who(), answering.accepted());
    return Status(told.status().code(), told.status().message() + outside);
  }
  for (const int leader : leaders) {
    std::vector<std::vector<std::string>> row(leaders.size());
    CIUIC_RETURN_IF_ERROR(read_row((*told)[static_cast<size_t>(leader)], &row));
    result.works_.push_back(std::move(row));
  }
  return result;
}

std::vector<posix::Address> Reachable::addresses(int from, int to) const {
  const Card& mine = roll_.cards[static_cast<size_t>(from)];
  const Card& other = roll_.cards[static_cast<size_t>(to)];
  std::vector<posix::Address> all =
      reachable(mine.machine_id, other.machine_id, other.addresses, other.loopback);
  const auto from_host = static_cast<size_t>(host_of_[static_cast<size_t>(from)]);
  const auto to_host = static_cast<size_t>(host_of_[static_cast<size_t>(to)]);
  if (from_host == to_host || works_.empty()) return all;
  std::vector<posix::Address> proven;
  for (const std::string& text : works_[from_host][to_host]) {
    for (const posix::Address& address : all) {
      if (address.text == text) proven.push_back(address);
    }
  }
  // A rank with other addresses than the one that stood for its host: all may be tried.
  return proven.empty() ? all : proven;
}

}  // namespace ciuic::bootstrap
