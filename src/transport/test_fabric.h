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
#include "transport/test_messages.h"

namespace ciuic::transport {

// Never destroyed: a test's threads may outlive main().
inline const std::string& kTestSecret = *new std::string(32, 's');

inline security::Identity test_identity() {
  security::Identity identity;
  identity.job = "test";
  identity.epoch = 3;
  identity.group = 7;
  return identity;
}

// Calls `step` until `done`; a generous limit stands for "never".
inline bool pump_until(const std::function<void()>& step, const std::function<bool()>& done) {
  const TimeNs limit = now_ns() + TimeNs{120} * 1'000'000'000;
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
      pools_.push_back(memory::SharedPool::create());
      segments_.push_back(std::move(shm::Segment::create(owner, pools_.back()).value()));
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
  memory::SharedPool& pool(int rank) { return *pools_[rank]; }
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

  std::vector<std::shared_ptr<memory::SharedPool>> pools_;  // of tensors, a process's each
  std::vector<std::shared_ptr<shm::Segment>> segments_;
  std::vector<int> sockets_;
};

class TcpFabric final : public Fabric {
 public:
  explicit TcpFabric(int size, security::UseTls tls = security::UseTls::kNo) : Fabric(size) {
    std::vector<posix::Address> addresses;
    for (int rank = 0; rank < size; ++rank) {
      tcp::TcpAcceptorOptions options;
      options.listeners.push_back(std::move(posix::listen_at({"127.0.0.1", 0}).value()));
      addresses.push_back(posix::local_address(options.listeners[0].get()).value());
      options.secret = kTestSecret;
      options.identity = test_identity();
      options.identity.to = rank;
      options.identity.tls = tls;
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
        options.identity.tls = tls;
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
  if (kind == "tls") return std::make_unique<TcpFabric>(size, security::UseTls::kYes);
  return std::make_unique<ShmFabric>(size, kind == "shm_one_mapping");
}

}  // namespace ciuic::transport
