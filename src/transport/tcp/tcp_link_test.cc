// SPDX-License-Identifier: Apache-2.0
// tcp_link_test.cc: connecting, reading, strangers, and peers that send nonsense.

#include "transport/tcp/tcp_link.h"

#include <sys/wait.h>

#include <random>

#include "transport/tcp/tcp_link_fixture.h"

namespace ciuic::transport::tcp {
namespace {

// An address of this host at which nobody listens; the socket keeps it from being given to others.
std::pair<posix::UniqueFd, posix::Address> address_of_nobody() {
  posix::UniqueFd fd = std::move(posix::listen_at({"127.0.0.1", 0}).value());
  const posix::Address address = posix::local_address(fd.get()).value();
  shutdown(fd.get(), SHUT_RDWR);  // no longer listens, still bound
  return {std::move(fd), address};
}

TEST_F(TcpLinkTest, DoesNotConnectBeforeItIsNeeded) {
  posix::UniqueFd listener = std::move(posix::listen_at({"127.0.0.1", 0}).value());
  make_link({posix::local_address(listener.get()).value()});
  for (int i = 0; i < 100; ++i) step();
  EXPECT_FALSE(posix::accept_from(listener.get())->valid());
  const size_t before = link_->buffer_bytes();
  EXPECT_LT(before, 8192u);
  EXPECT_FALSE(link_->can_send(0));
  posix::UniqueFd fd;
  ASSERT_TRUE(pump([&] { return (fd = std::move(*posix::accept_from(listener.get()))).valid(); }));
}

TEST_F(TcpLinkTest, ReadsWhatComesInPiecesOfEverySize) {
  const posix::UniqueFd fd = connected_peer();
  std::vector<std::byte> stream;
  const std::vector<size_t> sizes = {0, 5, 4095, 4096, 10'000, 1, 0, 100, 70'000, 4000, 4097};
  for (uint32_t number = 1; number <= sizes.size(); ++number) {
    const auto header = bytes_of(data_header(number, sizes[number - 1]));
    const auto payload = pattern(number, sizes[number - 1]);
    stream.insert(stream.end(), header.begin(), header.end());
    stream.insert(stream.end(), payload.begin(), payload.end());
  }
  std::mt19937 random(4);
  Checker checker(link_.get());
  size_t put_bytes = 0;
  ASSERT_TRUE(pump([&] {
    if (put_bytes < stream.size()) {
      const size_t piece = std::min<size_t>(stream.size() - put_bytes, 1 + random() % 400);
      put(fd, stream.data() + put_bytes, piece);
      put_bytes += piece;
    }
    while (checker.take()) checker.release_all();
    return checker.received() == sizes.size();
  }));
}

TEST_F(TcpLinkTest, PlacesALargePayloadWhereItShallLie) {
  const posix::UniqueFd fd = connected_peer();
  const size_t bytes = 200'000;
  put_message(fd, 1, bytes);
  put_message(fd, 2, 8);
  Arrival arrival;
  ASSERT_TRUE(pump([&] { return link_->receive(&arrival); }));
  EXPECT_EQ(arrival.data, nullptr);
  expect_header(arrival.header, data_header(1, bytes));
  // Nothing else comes before it is placed.
  for (int i = 0; i < 10; ++i) {
    step();
    Arrival other;
    EXPECT_FALSE(link_->receive(&other));
  }
  std::vector<std::byte> destination(bytes);
  link_->place(destination.data());
  ASSERT_TRUE(pump([&] { return link_->receive(&arrival); }));
  EXPECT_EQ(arrival.data, destination.data());
  expect_header(arrival.header, data_header(1, bytes));
  EXPECT_EQ(destination, pattern(1, bytes));
  link_->release(arrival.token);  // nothing to release, and no harm
  ASSERT_TRUE(pump([&] { return link_->receive(&arrival); }));
  expect_header(arrival.header, data_header(2, 8));
}

TEST_F(TcpLinkTest, GarbageEndsTheLink) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    const posix::UniqueFd fd = connected_peer();
    put_message(fd, 1, 100);
    std::vector<std::byte> garbage(200);
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
    put(fd, garbage.data(), garbage.size());
    Checker checker(link_.get());
    ASSERT_TRUE(pump([&] {
      while (checker.take()) {
      }
      return !link_->status().ok();
    }));
    EXPECT_EQ(checker.received(), 1u);
    checker.release_all();
    expect_status(StatusCode::kMismatch, {"rank 1 (host-b)"});
  }
}

TEST_F(TcpLinkTest, AnotherWireVersionIsNamed) {
  const posix::UniqueFd fd = connected_peer();
  auto bytes = bytes_of(data_header(1, 0));
  bytes[4] = std::byte{9};
  put(fd, bytes.data(), bytes.size());
  ASSERT_TRUE(pump([&] {
    Arrival arrival;
    link_->receive(&arrival);
    return !link_->status().ok();
  }));
  expect_status(StatusCode::kMismatch, {"rank 1 (host-b)", "version 9"});
}

TEST_F(TcpLinkTest, NobodyAtAnyAddressIsALostPeerThatNamesThemAll) {
  const auto first = address_of_nobody();
  const auto second = address_of_nobody();
  make_link({first.second, second.second});
  EXPECT_FALSE(link_->can_send(0));
  ASSERT_TRUE(pump([&] { return !link_->status().ok(); }));
  expect_status(StatusCode::kPeerLost,
                {"rank 1 (host-b)", first.second.format(), second.second.format(), "ECONNREFUSED"});
}

// Rank 1 at a listener, which nobody looks at before the first progress().
class TcpLateTest : public TcpLinkTest {
 protected:
  void make_peer(posix::UniqueFd listener) {
    TcpAcceptorOptions theirs;
    theirs.listeners.push_back(std::move(listener));
    theirs.secret = kTestSecret;
    theirs.identity = test_identity();
    theirs.identity.to = 1;
    theirs.poller = peer_poller_.get();
    TcpLinkOptions options;
    options.peer = 0;
    options.peer_name = "rank 0";
    options.secret = kTestSecret;
    options.identity = test_identity();
    options.identity.from = 1;
    options.acceptor = TcpAcceptor::create(std::move(theirs)).value();
    options.poller = peer_poller_.get();
    peer_ = std::make_unique<TcpLink>(std::move(options));
  }

  // Until the link has connected there twice; false if it has failed.
  bool sleep_until_tried_again(int listener) {
    EXPECT_FALSE(link_->can_send(0));
    return sleep_until([&] {
             posix::UniqueFd fd = std::move(posix::accept_from(listener).value());
             if (fd) tries_.push_back(std::move(fd));
             return tries_.size() == 2 || !link_->status().ok();
           }) &&
           link_->status().ok();
  }

  void expect_connects() {
    const auto step_peer = [&] {
      peer_poller_->poll(0);
      peer_->progress();
    };
    ASSERT_TRUE(pump([&] {
      step_peer();
      return link_->can_send(0);
    })) << link_->status().message();
    Feeder feeder(link_.get());
    Checker checker(peer_.get());
    ASSERT_TRUE(feeder.send(100));
    ASSERT_TRUE(pump([&] {
      step_peer();
      return checker.take();
    }));
    checker.release_all();
  }

  std::unique_ptr<posix::Poller> peer_poller_ = std::move(posix::Poller::create().value());
  std::unique_ptr<TcpLink> peer_;
  std::vector<posix::UniqueFd> tries_;
};

TEST_F(TcpLateTest, APeerThatIsLateIsWaitedFor) {
  posix::UniqueFd listener = std::move(posix::listen_at({"127.0.0.1", 0}).value());
  const int queue = listener.get();
  make_link({posix::local_address(queue).value()}, 50);
  make_peer(std::move(listener));
  ASSERT_TRUE(sleep_until_tried_again(queue)) << link_->status().message();
  tries_.clear();
  expect_connects();
}

TEST_F(TcpLateTest, ASilentServiceAtOneAddressDoesNotKeepFromTheNext) {
  const posix::UniqueFd silent = std::move(posix::listen_at({"127.0.0.1", 0}).value());
  posix::UniqueFd listener = std::move(posix::listen_at({"127.0.0.1", 0}).value());
  make_link(
      {posix::local_address(silent.get()).value(), posix::local_address(listener.get()).value()},
      50);
  make_peer(std::move(listener));
  EXPECT_FALSE(link_->can_send(0));
  expect_connects();
}

TEST_F(TcpLateTest, OneThatIsGoneAtLastIsLost) {
  posix::UniqueFd listener = std::move(posix::listen_at({"127.0.0.1", 0}).value());
  const posix::Address address = posix::local_address(listener.get()).value();
  make_link({address}, 50);
  ASSERT_TRUE(sleep_until_tried_again(listener.get())) << link_->status().message();
  shutdown(listener.get(), SHUT_RDWR);
  tries_.clear();
  ASSERT_TRUE(sleep_until([&] { return !link_->status().ok(); }));
  expect_status(StatusCode::kPeerLost, {"rank 1 (host-b)", address.format(), "ECONNREFUSED"});
}

TEST_F(TcpLinkTest, AnAddressWhoseSystemDoesNotAnswerIsALostPeer) {
  // With its queue full the system drops what else would connect, as an unplugged host does.
  posix::UniqueFd full = std::move(posix::listen_at({"127.0.0.1", 0}, /*backlog=*/0).value());
  const posix::Address address = posix::local_address(full.get()).value();
  const posix::UniqueFd first = std::move(posix::connect_to(address, kNever).value());
  make_link({address}, 50);
  EXPECT_FALSE(link_->can_send(0));
  ASSERT_TRUE(sleep_until([&] { return !link_->status().ok(); }));
  expect_status(StatusCode::kPeerLost, {"rank 1 (host-b)", address.format(), "no answer in time"});
}

TEST_F(TcpLinkTest, AServiceThatIsNotOursIsPassedOver) {
  posix::UniqueFd other = std::move(posix::listen_at({"127.0.0.1", 0}).value());
  make_link({posix::local_address(other.get()).value()});
  EXPECT_FALSE(link_->can_send(0));
  posix::UniqueFd fd;
  ASSERT_TRUE(pump([&] { return (fd = std::move(*posix::accept_from(other.get()))).valid(); }));
  const std::string greeting(4096, 'A');
  put(fd, greeting.data(), greeting.size());
  ASSERT_TRUE(pump([&] { return !link_->status().ok(); }));
  expect_status(StatusCode::kPeerLost, {"rank 1 (host-b)", "handshake"});
}

// Two ranks, each with its acceptor, and what a test changes about rank 0's way to rank 1.
TEST(TcpConnecting, AnotherSecretIsRefusedByName) {
  TcpFabric fabric(2);
  TcpFabric honest(2);
  TcpLinkOptions options;
  options.peer = 1;
  options.peer_name = "rank 1 (host-b)";
  posix::UniqueFd listener = std::move(posix::listen_at({"127.0.0.1", 0}).value());
  options.addresses = {posix::local_address(listener.get()).value()};
  options.secret = std::string(32, 'x');
  options.identity = test_identity();
  options.identity.from = 0;
  auto poller = std::move(posix::Poller::create().value());
  TcpAcceptorOptions mine;
  mine.poller = poller.get();
  options.acceptor = TcpAcceptor::create(std::move(mine)).value();
  options.poller = poller.get();
  TcpAcceptorOptions theirs;
  theirs.listeners.push_back(std::move(listener));
  theirs.secret = kTestSecret;
  theirs.identity = test_identity();
  theirs.identity.to = 1;
  theirs.poller = poller.get();
  const auto acceptor = TcpAcceptor::create(std::move(theirs)).value();
  TcpLink link(std::move(options));
  EXPECT_FALSE(link.can_send(0));
  ASSERT_TRUE(pump_until(
      [&] {
        poller->poll(0);
        link.progress();
        acceptor->progress();
      },
      [&] { return !link.status().ok() && acceptor->strangers() == 1; }));
  EXPECT_EQ(link.status().code(), StatusCode::kPermission) << link.status().message();
  EXPECT_NE(link.status().message().find("rank 1 (host-b)"), std::string::npos);
}

TEST_F(TcpLinkTest, TheNextAddressIsTriedWhenOneRefuses) {
  const auto nobody = address_of_nobody();
  TcpFabric fabric(1);
  posix::UniqueFd listener = std::move(posix::listen_at({"127.0.0.1", 0}).value());
  const posix::Address good = posix::local_address(listener.get()).value();
  TcpAcceptorOptions theirs;
  theirs.listeners.push_back(std::move(listener));
  theirs.secret = kTestSecret;
  theirs.identity = test_identity();
  theirs.identity.to = 1;
  theirs.poller = poller_.get();
  const auto acceptor = TcpAcceptor::create(std::move(theirs)).value();
  TcpLinkOptions options;
  options.peer = 0;
  options.peer_name = "rank 0";
  options.secret = kTestSecret;
  options.identity = test_identity();
  options.identity.from = 1;
  options.acceptor = acceptor;
  options.poller = poller_.get();
  TcpLink back(std::move(options));

  make_link({nobody.second, good});
  ASSERT_TRUE(pump([&] {
    back.progress();
    return link_->can_send(0);
  }));
  Feeder feeder(link_.get());
  Checker checker(&back);
  ASSERT_TRUE(feeder.send(100));
  ASSERT_TRUE(pump([&] { return back.progress(), checker.take(); }));
  checker.release_all();
}

TEST(TcpConnecting, BothMayBeginAtOnce) {
  for (int round = 0; round < 50; ++round) {
    TcpFabric fabric(2);
    Feeder feeders[] = {Feeder(&fabric.link(0, 1)), Feeder(&fabric.link(1, 0))};
    Checker checkers[] = {Checker(&fabric.link(1, 0)), Checker(&fabric.link(0, 1))};
    std::mt19937 random(static_cast<uint32_t>(round));
    ASSERT_TRUE(pump_until(
        [&] {
          fabric.step(static_cast<int>(random() % 2));
          for (int way = 0; way < 2; ++way) {
            if (feeders[way].number() < 20) feeders[way].send(random() % 6000);
            feeders[way].spoil();
            while (checkers[way].take()) checkers[way].release_all();
          }
        },
        [&] { return checkers[0].received() == 20 && checkers[1].received() == 20; }))
        << "round " << round << ": " << fabric.link(0, 1).status().message() << " / "
        << fabric.link(1, 0).status().message();
  }
}

TEST_F(TcpLinkTest, StrangersAreCountedAndDoNotDisturb) {
  make_link({});
  std::vector<posix::UniqueFd> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(std::move(posix::connect_to(address_, kNever).value()));
    const std::string garbage(500, static_cast<char>(i));
    if (i % 2 == 0) put(strangers.back(), garbage.data(), garbage.size());
    step();
  }
  const posix::UniqueFd wrong = connect_as(1, std::string(32, 'x'));
  const posix::UniqueFd unknown = connect_as(5);
  posix::UniqueFd peer = connect_as(1);
  ASSERT_TRUE(pump([&] { return link_->can_send(0); }));
  ASSERT_TRUE(pump([&] { return acceptor_->strangers() >= 52; }));
  // A second connection of the same rank is turned away; the first one stays.
  const uint64_t before = acceptor_->strangers();
  const posix::UniqueFd again = connect_as(1);
  ASSERT_TRUE(pump([&] { return acceptor_->strangers() > before; }));
  char kept = 0;
  ASSERT_EQ(*posix::receive_some(peer.get(), &kept, 1), 1u);
  put_message(peer, 1, 100);
  Checker checker(link_.get());
  ASSERT_TRUE(pump([&] { return checker.take(); }));
  checker.release_all();
}

TEST(TcpConnecting, AForkedChildLetsGoInSilence) {
  TcpFabric* fabric = new TcpFabric(2);
  Feeder feeder(&fabric->link(0, 1));
  Checker checker(&fabric->link(1, 0));
  const auto receive_one = [&] {
    return pump_until([&] { fabric->step(); }, [&] { return checker.take(); });
  };
  ASSERT_TRUE(pump_until([&] { fabric->step(); }, [&] { return feeder.send(100); }));
  ASSERT_TRUE(receive_one());
  const pid_t child = fork();
  if (child == 0) {
    delete fabric;
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_TRUE(feeder.send(5000));
  ASSERT_TRUE(receive_one());
  checker.release_all();
  EXPECT_TRUE(fabric->link(1, 0).status().ok());
  delete fabric;
}

}  // namespace
}  // namespace ciuic::transport::tcp
