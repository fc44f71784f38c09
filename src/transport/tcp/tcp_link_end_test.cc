// SPDX-License-Identifier: Apache-2.0
// tcp_link_end_test.cc: how a connection ends: broken off, in good order, with much unsent.

#include <poll.h>

#include <chrono>
#include <future>
#include <span>
#include <thread>

#include "transport/tcp/tcp_link_fixture.h"

namespace ciuic::transport::tcp {
namespace {

TEST_F(TcpLinkTest, AnEndWithoutGoodbyeIsALostPeer) {
  posix::UniqueFd fd = connected_peer();
  put_message(fd, 1, 100);
  put_message(fd, 2, 0);
  fd.reset();
  // What had come is received first.
  Checker checker(link_.get());
  ASSERT_TRUE(pump([&] { return checker.take(); }));
  EXPECT_TRUE(link_->status().ok());
  ASSERT_TRUE(pump([&] { return checker.take(); }));
  checker.release_all();
  ASSERT_TRUE(pump([&] { return !link_->status().ok(); }));
  expect_status(StatusCode::kPeerLost, {"rank 1 (host-b)", "closed the connection"});
}

TEST_F(TcpLinkTest, AnEndInTheMiddleOfAMessageIsALostPeer) {
  for (const size_t sent : {size_t{10}, size_t{48}, size_t{49}, size_t{5000}}) {
    for (const size_t payload_bytes : {size_t{3000}, size_t{9000}}) {
      posix::UniqueFd fd = connected_peer();
      std::vector<std::byte> message(wire::kHeaderBytes + payload_bytes);
      const auto header = bytes_of(data_header(1, payload_bytes));
      std::copy(header.begin(), header.end(), message.begin());
      put(fd, message.data(), std::min(sent, message.size() - 1));
      fd.reset();
      std::vector<std::byte> destination(payload_bytes);
      ASSERT_TRUE(pump([&] {
        Arrival arrival;
        if (link_->receive(&arrival)) {
          EXPECT_EQ(arrival.data, nullptr);  // announced at most, never complete
          link_->place(destination.data());
        }
        return !link_->status().ok();
      }));
      expect_status(StatusCode::kPeerLost, {"rank 1 (host-b)", "middle of a message"});
    }
  }
}

// Nobody may believe that data left which did not: an operation that only sends ends in an error.
TEST_F(TcpLinkTest, AResetWhileSendingIsALostPeerAndCountsNothingAsSent) {
  posix::UniqueFd fd = connected_peer();
  wire::Header credit;
  credit.type = wire::MessageType::kCredit;
  ASSERT_TRUE(link_->can_send(0));
  link_->send(credit, nullptr, nullptr);  // unread at the peer's end: closing that is a reset
  const std::vector<std::byte> payload(1 << 20);
  while (link_->can_send(payload.size())) {
    link_->send(data_header(1, payload.size()), payload.data(), nullptr);
  }
  const uint64_t before = link_->sent();
  fd.reset();
  ASSERT_TRUE(pump([&] {
    EXPECT_EQ(link_->sent(), before);
    Arrival arrival;
    EXPECT_FALSE(link_->receive(&arrival));
    return !link_->status().ok();
  }));
  expect_status(StatusCode::kPeerLost, {"rank 1 (host-b)"});
  EXPECT_EQ(link_->sent(), before);
}

TEST_F(TcpLinkTest, AGoodbyeBehindUnsentDataIsTold) {
  posix::UniqueFd fd = connected_peer();
  const std::vector<std::byte> payload(1 << 20);
  while (link_->can_send(payload.size())) {
    link_->send(data_header(1, payload.size()), payload.data(), nullptr);
  }
  wire::Header goodbye;
  goodbye.type = wire::MessageType::kGoodbye;
  put(fd, bytes_of(goodbye).data(), wire::kHeaderBytes);
  shutdown(fd.get(), SHUT_WR);
  const uint64_t before = link_->sent();
  Arrival arrival;
  ASSERT_TRUE(pump([&] { return link_->receive(&arrival); }));
  EXPECT_EQ(arrival.header.type, wire::MessageType::kGoodbye);
  // Together with the goodbye, not after it: who hears of that asks at once what is missing.
  expect_status(StatusCode::kPeerLost, {"rank 1 (host-b)", "has closed its communicator"});
  EXPECT_EQ(link_->sent(), before);
}

TEST_F(TcpLinkTest, CreditsThatNobodyWantsAnyMoreAreNoLoss) {
  posix::UniqueFd fd = connected_peer();
  const std::vector<std::byte> payload(1 << 20);
  ASSERT_TRUE(link_->can_send(payload.size()));
  link_->send(data_header(1, 100), payload.data(), nullptr);
  EXPECT_EQ(link_->sent(), 1u);
  wire::Header goodbye;
  goodbye.type = wire::MessageType::kGoodbye;
  put(fd, bytes_of(goodbye).data(), wire::kHeaderBytes);
  Arrival arrival;
  ASSERT_TRUE(pump([&] { return link_->receive(&arrival); }));
  wire::Header credit;
  credit.type = wire::MessageType::kCredit;
  link_->send(credit, nullptr, nullptr);
  fd.reset();
  for (int i = 0; i < 20; ++i) step();
  EXPECT_TRUE(link_->status().ok()) << link_->status().message();
  EXPECT_EQ(link_->sent(), 2u);
}

// What a peer that reads only later gets of a link that closed while the socket was full.
TEST_F(TcpLinkTest, ClosingWithAFullSocketStillSaysGoodbye) {
  posix::UniqueFd fd = connected_peer();
  const std::vector<std::byte> payload(100'000, std::byte{'x'});
  uint64_t calls = 0;
  while (link_->can_send(payload.size())) {
    link_->send(data_header(1, payload.size()), payload.data(), nullptr);
    ++calls;
  }
  ASSERT_LT(link_->sent(), calls);
  std::vector<std::byte> came;
  std::promise<void> closes;
  std::thread reader([&] {
    closes.get_future().wait();
    std::vector<std::byte> some(1 << 16);
    while (true) {
      if (!*posix::wait_for(fd.get(), POLLIN, kNever)) continue;
      const Result<size_t> count = posix::receive_some(fd.get(), some.data(), some.size());
      if (!count.ok()) return;  // the end
      came.insert(came.end(), some.begin(), some.begin() + static_cast<ptrdiff_t>(*count));
    }
  });
  closes.set_value();
  link_->close();
  reader.join();
  ASSERT_EQ(came.size(), calls * (wire::kHeaderBytes + payload.size()) + wire::kHeaderBytes);
  const auto last = std::span(came).last<wire::kHeaderBytes>();
  EXPECT_EQ(wire::decode(last)->type, wire::MessageType::kGoodbye);
}

// The socket at the other end of a connection within this process.
int other_end_of(const posix::UniqueFd& fd) {
  const posix::Address near = posix::local_address(fd.get()).value();
  for (int other = 0; other < 1024; ++other) {
    const Result<posix::Address> far = posix::peer_address(other);
    if (far.ok() && *far == near) return other;
  }
  return -1;
}

// What Linux has taken of this link's data must survive what the peer sends after the close.
TEST_F(TcpLinkTest, ClosingLosesNothingToWhatStillComes) {
  const posix::UniqueFd fd = connected_peer();
  const int other_end = other_end_of(fd);
  ASSERT_GE(other_end, 0);
  const std::vector<std::byte> payload(50'000, std::byte{'x'});
  uint64_t calls = 0;
  // All of it is the kernel's, and more than the peer's end takes before it reads.
  while (posix::unsent_bytes(other_end) < 4 * payload.size()) {
    ASSERT_TRUE(link_->can_send(payload.size()));
    link_->send(data_header(1, payload.size()), payload.data(), nullptr);
    ASSERT_EQ(link_->sent(), ++calls);
  }
  std::future<void> closing = std::async(std::launch::async, [&] { link_->close(); });
  // The wrong order of things, where it is possible at all.
  closing.wait_for(std::chrono::milliseconds(20));
  put(fd, bytes_of(data_header(1, 0)).data(), wire::kHeaderBytes);
  std::vector<std::byte> some(1 << 16);
  size_t came = 0;
  for (bool open = true; open;) {
    ASSERT_TRUE(*posix::wait_for(fd.get(), POLLIN, kNever));
    const Result<size_t> count = posix::receive_some(fd.get(), some.data(), some.size());
    open = count.ok();
    came += open ? *count : 0;
  }
  closing.get();
  EXPECT_EQ(came, calls * (wire::kHeaderBytes + payload.size()) + wire::kHeaderBytes);
}

TEST_F(TcpLinkTest, ClosingEndsWhereThePeerNeverReads) {
  make_acceptor(/*last_word_ms=*/20);
  const posix::UniqueFd fd = connected_peer();
  const std::vector<std::byte> payload(100'000);
  while (link_->can_send(payload.size())) {
    link_->send(data_header(1, payload.size()), payload.data(), nullptr);
  }
  link_->close();
  EXPECT_FALSE(link_->can_send(0));
}

TEST_F(TcpLinkTest, AnUnconnectedLinkIsToldThatItsPeerIsGone) {
  posix::UniqueFd silent = std::move(posix::listen_at({"127.0.0.1", 0}).value());
  for (const bool begun : {false, true}) {
    make_link({posix::local_address(silent.get()).value()});
    if (begun) {
      EXPECT_FALSE(link_->can_send(0));
    }
    link_->peer_gone(Status(StatusCode::kPeerLost, "rank 1 (host-b) is gone"));
    expect_status(StatusCode::kPeerLost, {"rank 1 (host-b) is gone"});
    EXPECT_FALSE(link_->progress());
  }
  const posix::UniqueFd fd = connected_peer();
  link_->peer_gone(Status(StatusCode::kPeerLost, "rank 1 (host-b) is gone"));
  EXPECT_TRUE(link_->status().ok());  // what it has sent comes first
  put_message(fd, 1, 10);
  Checker checker(link_.get());
  ASSERT_TRUE(pump([&] { return checker.take(); }));
  checker.release_all();
}

}  // namespace
}  // namespace ciuic::transport::tcp
