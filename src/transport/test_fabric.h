// SPDX-License-Identifier: Apache-2.0
// test_fabric.h: ranks in one process, with a link between every two, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "drivers/posix/poller.h"
#include "drivers/posix/socket.h"
#include "transport/link.h"
#include "transport/shm/shm_link.h"
#include "transport/tcp/tcp_acceptor.h"
#include "transport/tcp/tcp_link.h"

namespace ciuic::transport {

inline const std::string kTestSecret(32, 's');

inline security::Identity test_identity() {
  security::Identity identity;
  identity.job = "test";
  identity.epoch = 3;
  identity.group = 7;
  return identity;
}

// Calls `step` until `done`; a generous limit stands for "never".
inline bool pump_until(const std::function<void()>& step, const std::function<bool()>& done) {
  const TimeNs limit = now_ns() + TimeNs{20} * 1'000'000'000;
  while (!done()) {
    if (now_ns() > limit) return false;
    step();
  }
  return true;
}

class Fabric {
 public:
  explicit Fabric(int size) : size_(size), links_(size * size) {
    for (int rank = 0; rank < size; ++rank) {
      pollers_.push_back(std::move(posix::Poller::create().value()));
    }
  }
  virtual ~Fabric() = default;

  int size() const { return size_; }
  posix::Poller* poller(int rank) { return pollers_[rank].get(); }
  Link& link(int from, int to) { return *links_[from * size_ + to]; }
  void drop_links() { links_.clear(); }
  std::unique_ptr<Link>& slot(int from, int to) { return links_[from * size_ + to]; }

  // What a rank's engine does at the beginning of each step.
  void step(int rank) {
    poller(rank)->poll(0);
    for (int peer = 0; peer < size_; ++peer) {
      if (slot(rank, peer)) link(rank, peer).progress();
    }
  }
  void step() {
    for (int rank = 0; rank < size_; ++rank) step(rank);
  }

 private:
  int size_;
  std::vector<std::unique_ptr<posix::Poller>> pollers_;  // outlive the links
  std::vector<std::unique_ptr<Link>> links_;
};

class ShmFabric final : public Fabric {
 public:
  // With one mapping a race between two ranks' threads is one to the thread sanitizer, too.
  ShmFabric(int size, bool one_mapping) : Fabric(size), sockets_(size * size) {
    shm::SegmentOwner owner;
    owner.epoch = 3;
    owner.group = 7;
    for (int rank = 0; rank < size; ++rank) owner.ranks.push_back(rank);
    for (owner.rank = 0; owner.rank < size; ++owner.rank) {
      segments_.push_back(std::move(shm::Segment::create(owner).value()));
    }
    for (int low = 0; low < size; ++low) {
      for (int high = low + 1; high < size; ++high) {
        int fds[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
        connect(low, high, fds[0], one_mapping);
        connect(high, low, fds[1], one_mapping);
      }
    }
  }

  ~ShmFabric() override { drop_links(); }  // they look into each other's segments

  shm::Segment& segment(int rank) { return *segments_[rank]; }
  int socket(int from, int to) { return sockets_[from * size() + to]; }

 private:
  void connect(int from, int to, int fd, bool one_mapping) {
    shm::ShmLinkOptions options;
    options.segment = segments_[from];
    options.peer = to;
    options.peer_name = "rank " + std::to_string(to);
    options.peer_segment = segments_[to]->view();
    if (!one_mapping) {
      const size_t bytes = segments_[to]->bytes();
      options.mapping = std::move(posix::Mapping::map(segments_[to]->fd(), bytes, false).value());
      options.peer_segment =
          shm::check_segment(options.mapping, segments_[from]->owner(), to).value();
    }
    options.doorbell.reset(dup(poller(to)->doorbell_fd()));
    options.socket.reset(fd);
    options.poller = poller(from);
    sockets_[from * size() + to] = fd;
    slot(from, to) = std::move(shm::ShmLink::create(std::move(options)).value());
  }

  std::vector<std::shared_ptr<shm::Segment>> segments_;
  std::vector<int> sockets_;
};

class TcpFabric final : public Fabric {
 public:
  explicit TcpFabric(int size) : Fabric(size) {
    std::vector<posix::Address> addresses;
    for (int rank = 0; rank < size; ++rank) {
      tcp::TcpAcceptorOptions options;
      options.listeners.push_back(std::move(posix::listen_at({"127.0.0.1", 0}).value()));
      addresses.push_back(posix::local_address(options.listeners[0].get()).value());
      options.secret = kTestSecret;
      options.identity = test_identity();
      options.identity.to = rank;
      options.poller = poller(rank);
      acceptors_.push_back(std::move(tcp::TcpAcceptor::create(std::move(options)).value()));
    }
    for (int from = 0; from < size; ++from) {
      for (int to = 0; to < size; ++to) {
        if (from == to) continue;
        tcp::TcpLinkOptions options;
        options.peer = to;
        options.peer_name = "rank " + std::to_string(to) + " (localhost)";
        options.addresses = {addresses[to]};
        options.secret = kTestSecret;
        options.identity = test_identity();
        options.identity.from = from;
        options.acceptor = acceptors_[from];
        options.poller = poller(from);
        slot(from, to) = std::make_unique<tcp::TcpLink>(std::move(options));
      }
    }
  }

  tcp::TcpAcceptor& acceptor(int rank) { return *acceptors_[rank]; }

 private:
  std::vector<std::shared_ptr<tcp::TcpAcceptor>> acceptors_;
};

inline std::unique_ptr<Fabric> make_fabric(const std::string& kind, int size) {
  if (kind == "tcp") return std::make_unique<TcpFabric>(size);
  return std::make_unique<ShmFabric>(size, kind == "shm_one_mapping");
}

// The bytes of message `number`: none equals its neighbour's, at no offset.
inline std::vector<std::byte> pattern(uint32_t number, size_t bytes) {
  std::vector<std::byte> data(bytes);
  uint32_t state = number * 2654435761u + 12345;
  for (std::byte& byte : data) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>(state >> 24);
  }
  return data;
}

inline wire::Header data_header(uint32_t number, size_t bytes) {
  wire::Header header;
  header.type = wire::MessageType::kData;
  header.lane = static_cast<uint8_t>(number * 7);
  header.step = static_cast<uint16_t>(number * 11);
  header.epoch = 3;
  header.group = 7;
  header.sequence = number;
  header.fingerprint = number * 2654435761u;
  header.chunk = number ^ 0x5555;
  header.payload_bytes = static_cast<uint32_t>(bytes);
  header.acked = number - 1;
  header.message_bytes = bytes + (uint64_t{number} << 33);
  return header;
}

inline void expect_header(const wire::Header& found, const wire::Header& expected) {
  EXPECT_EQ(found.type, expected.type);
  EXPECT_EQ(found.lane, expected.lane);
  EXPECT_EQ(found.step, expected.step);
  EXPECT_EQ(found.epoch, expected.epoch);
  EXPECT_EQ(found.group, expected.group);
  EXPECT_EQ(found.sequence, expected.sequence);
  EXPECT_EQ(found.fingerprint, expected.fingerprint);
  EXPECT_EQ(found.chunk, expected.chunk);
  EXPECT_EQ(found.payload_bytes, expected.payload_bytes);
  EXPECT_EQ(found.acked, expected.acked);
  EXPECT_EQ(found.message_bytes, expected.message_bytes);
}

// Receives the messages 1, 2, ... of one link and checks that they are what data_header() and
// pattern() say. Holds payloads until told to release them.
class Checker {
 public:
  explicit Checker(Link* link) : link_(link) {}

  struct Held {
    uint32_t number;
    const std::byte* data;
    size_t bytes;
    uint64_t token;
    bool placed;
  };

  // Takes one message, if there is one.
  bool take() {
    Arrival arrival;
    if (!link_->receive(&arrival)) return false;
    if (arrival.data == nullptr && arrival.header.payload_bytes > 0) {
      place_.resize(arrival.header.payload_bytes);
      link_->place(place_.data());
      if (!link_->receive(&arrival)) return false;
    }
    ++received_;
    const size_t bytes = arrival.header.payload_bytes;
    expect_header(arrival.header, data_header(received_, bytes));
    const bool placed = bytes > 0 && arrival.data == place_.data();
    held_.push_back({received_, arrival.data, bytes, arrival.token, placed});
    check(held_.back());
    if (placed) held_.pop_back();
    return true;
  }

  // Looks at a held payload once more, then gives it back.
  void release(size_t index) {
    check(held_[index]);
    link_->release(held_[index].token);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  void release_all() {
    while (!held_.empty()) release(held_.size() - 1);
  }

  size_t held() const { return held_.size(); }
  uint32_t received() const { return received_; }

 private:
  static void check(const Held& held) {
    const std::vector<std::byte> expected = pattern(held.number, held.bytes);
    if (held.bytes == 0) return;
    EXPECT_EQ(std::memcmp(held.data, expected.data(), held.bytes), 0)
        << "message " << held.number << " of " << held.bytes << " bytes";
  }

  Link* link_;
  uint32_t received_ = 0;
  std::vector<std::byte> place_;
  std::vector<Held> held_;
};

// Sends the messages 1, 2, ... over one link. Each payload is spoilt as soon as the link says that
// it no longer needs it.
class Feeder {
 public:
  explicit Feeder(Link* link) : link_(link) {}

  bool send(size_t bytes) {
    if (!link_->can_send(bytes)) return false;
    ++number_;
    payloads_.push_back(pattern(number_, bytes));
    link_->send(data_header(number_, bytes), payloads_.back().data(), nullptr);
    spoil();
    return true;
  }

  void spoil() {
    for (; spoilt_ < link_->sent(); ++spoilt_) {
      std::vector<std::byte>& payload = payloads_[spoilt_];
      std::fill(payload.begin(), payload.end(), std::byte{0xdd});
      payload = {};
    }
  }

  uint32_t number() const { return number_; }

 private:
  Link* link_;
  uint32_t number_ = 0;
  uint64_t spoilt_ = 0;
  std::vector<std::vector<std::byte>> payloads_;
};

}  // namespace ciuic::transport
