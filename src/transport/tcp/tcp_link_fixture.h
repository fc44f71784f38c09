// SPDX-License-Identifier: Apache-2.0
// tcp_link_fixture.h: rank 0 with a link to rank 1, whose end of the connection the test plays.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/tcp/tcp_acceptor.h"
#include "transport/tcp/tcp_link.h"
#include "transport/test_fabric.h"

namespace ciuic::transport::tcp {

class TcpLinkTest : public testing::Test {
 protected:
  explicit TcpLinkTest(security::UseTls tls = security::UseTls::kNo) {
    identity_.tls = tls;
    make_acceptor(/*last_word_ms=*/60'000);
  }

  void make_acceptor(int64_t last_word_ms) {
    TcpAcceptorOptions options;
    options.listeners.push_back(std::move(posix::listen_at({"127.0.0.1", 0}).value()));
    address_ = posix::local_address(options.listeners[0].get()).value();
    options.secret = kTestSecret;
    options.identity = identity_;
    options.identity.to = 0;
    options.poller = poller_.get();
    options.last_word_ms = last_word_ms;
    acceptor_ = std::move(TcpAcceptor::create(std::move(options)).value());
  }

  void make_link(std::vector<posix::Address> addresses, int64_t connect_timeout_ms = 60'000,
                 std::string secret = kTestSecret) {
    TcpLinkOptions options;
    options.peer = 1;
    options.peer_name = "rank 1 (host-b)";
    options.addresses = std::move(addresses);
    options.secret = std::move(secret);
    options.identity = identity_;
    options.identity.from = 0;
    options.acceptor = acceptor_;
    options.poller = poller_.get();
    options.connect_timeout_ms = connect_timeout_ms;
    link_ = std::make_unique<TcpLink>(std::move(options));
  }

  void step() {
    poller_->poll(0);
    acceptor_->progress();
    link_->progress();
  }
  bool pump(const std::function<bool()>& done) {
    return pump_until([this] { step(); }, done);
  }

  // Sleeps as the driver does: the link itself sees to it that the poller wakes.
  bool sleep_until(const std::function<bool()>& done) {
    return pump_until(
        [this] {
          EXPECT_TRUE(poller_->poll(60'000));
          link_->progress();
        },
        done);
  }

  // Connects to rank 0 as `rank` and proves the secret.
  posix::UniqueFd connect_as(int rank, const std::string& secret = kTestSecret) {
    return std::move(connect_with(rank, secret, identity_.tls).fd);
  }
  TcpConnection connect_with(int rank, const std::string& secret, security::UseTls tls) {
    return prove(std::move(posix::connect_to(address_, kNever).value()), rank, secret, tls);
  }
  // Over a connection that is there.
  TcpConnection prove(posix::UniqueFd fd, int rank, const std::string& secret,
                      security::UseTls tls) {
    security::Identity identity = identity_;
    identity.tls = tls;
    identity.purpose = kTcpLinkPurpose;
    identity.from = rank;
    identity.to = 0;
    HandshakeIo handshake(security::Handshake::connecting(secret, identity));
    EXPECT_TRUE(pump([&] {
      const Result<bool> done = handshake.progress(fd.get());
      return !done.ok() || *done;
    }));
    return {std::move(fd), handshake.take_tls()};
  }

  // The other end of the link, connected.
  posix::UniqueFd connected_peer() {
    make_link({});
    posix::UniqueFd fd = connect_as(1);
    char kept = 0;
    EXPECT_TRUE(pump([&] { return *posix::receive_some(fd.get(), &kept, 1) == 1; }));
    EXPECT_EQ(kept, kKeptByte);
    EXPECT_TRUE(link_->can_send(0));
    return fd;
  }

  static void put(const posix::UniqueFd& fd, const void* data, size_t bytes) {
    ASSERT_TRUE(posix::send_all(fd.get(), data, bytes, kNever).ok());
  }
  static std::array<std::byte, wire::kHeaderBytes> bytes_of(const wire::Header& header) {
    std::array<std::byte, wire::kHeaderBytes> bytes;
    wire::encode(header, bytes);
    return bytes;
  }
  static void put_message(const posix::UniqueFd& fd, uint32_t number, size_t payload_bytes) {
    put(fd, bytes_of(data_header(number, payload_bytes)).data(), wire::kHeaderBytes);
    const std::vector<std::byte> payload = pattern(number, payload_bytes);
    put(fd, payload.data(), payload.size());
  }

  void expect_status(StatusCode code, const std::vector<std::string>& words) {
    EXPECT_EQ(link_->status().code(), code) << link_->status().message();
    for (const std::string& word : words) {
      EXPECT_NE(link_->status().message().find(word), std::string::npos)
          << word << " is not in: " << link_->status().message();
    }
    EXPECT_FALSE(link_->can_send(0));
  }

  security::Identity identity_ = test_identity();
  std::unique_ptr<posix::Poller> poller_ = std::move(posix::Poller::create().value());
  posix::Address address_;
  std::shared_ptr<TcpAcceptor> acceptor_;
  std::unique_ptr<TcpLink> link_;
};

}  // namespace ciuic::transport::tcp
