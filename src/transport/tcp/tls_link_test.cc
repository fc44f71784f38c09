// SPDX-License-Identifier: Apache-2.0
// tls_link_test.cc: what TLS adds to a link: who is let in, and what the end of a connection means.
// That a link over TLS keeps every other promise is link_test.cc's.

#include <poll.h>
#include <sys/wait.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <span>
#include <thread>

#include "transport/tcp/tcp_link_fixture.h"

namespace ciuic::transport::tcp {
namespace {

class TlsLinkTest : public TcpLinkTest {
 protected:
  TlsLinkTest() : TcpLinkTest(security::UseTls::kYes) {}

  void connect() {
    make_link({});
    peer_ = connect_with(1, kTestSecret, security::UseTls::kYes);
    ASSERT_NE(peer_.tls, nullptr);
    ASSERT_TRUE(pump([&] { return take() == std::string(1, kKeptByte); }));
    ASSERT_TRUE(link_->can_send(0));
  }

  // What has come to the peer.
  std::string take() {
    std::string bytes(100'000, '\0');
    const iovec part = {bytes.data(), bytes.size()};
    bool readable = true;
    const Result<size_t> count = peer_.tls->receive(peer_.fd.get(), {&part, 1}, &readable);
    end_ = count.status();
    bytes.resize(count.ok() ? *count : 0);
    return bytes;
  }

  void say(std::span<const std::byte> bytes) {
    bool writable = true;
    ASSERT_TRUE(*peer_.tls->write(bytes));
    ASSERT_TRUE(peer_.tls->flush(peer_.fd.get(), &writable).ok());
    ASSERT_TRUE(writable);
  }

  void say_message(uint32_t number, size_t payload_bytes) {
    say(bytes_of(data_header(number, payload_bytes)));
    say(pattern(number, payload_bytes));
  }

  TcpConnection peer_;
  Status end_;
};

TEST_F(TlsLinkTest, NothingOfAMessageIsOnTheWireAsItIs) {
  make_link({});
  peer_ = connect_with(1, kTestSecret, security::UseTls::kYes);
  ASSERT_TRUE(pump([&] { return link_->can_send(0); }));
  const std::string secret = "a payload that nobody on the way shall read";
  link_->send(data_header(1, secret.size()), reinterpret_cast<const std::byte*>(secret.data()),
              nullptr);
  std::string raw(4096, '\0');
  std::string all;
  ASSERT_TRUE(pump([&] {
    const Result<size_t> count = posix::receive_some(peer_.fd.get(), raw.data(), raw.size());
    EXPECT_TRUE(count.ok());
    all.append(raw, 0, *count);
    return all.size() >= secret.size() + wire::kHeaderBytes;
  }));
  EXPECT_EQ(all.find("payload"), std::string::npos);
  EXPECT_EQ(all[0], '\x17');  // a record of application data
  EXPECT_EQ(link_->sent(), 1u);
}

TEST_F(TlsLinkTest, ASettingThatDiffersIsNamedToTheConnectingSide) {
  // This end connects by TLS; the acceptor of the other rank takes none.
  posix::UniqueFd listener = std::move(posix::listen_at({"127.0.0.1", 0}).value());
  const posix::Address at = posix::local_address(listener.get()).value();
  TcpAcceptorOptions options;
  options.listeners.push_back(std::move(listener));
  options.secret = kTestSecret;
  options.identity = test_identity();
  options.identity.to = 1;
  options.poller = poller_.get();
  const auto plain = TcpAcceptor::create(std::move(options)).value();
  make_link({at});
  EXPECT_FALSE(link_->can_send(0));
  ASSERT_TRUE(pump([&] {
    plain->progress();
    return !link_->status().ok() && plain->strangers() == 1;
  }));
  expect_status(StatusCode::kMismatch, {"rank 1 (host-b)", "CIUIC_TLS=1 here, 0 at the peer"});
}

TEST_F(TlsLinkTest, WhoProvesTheSecretAndThenSpeaksPlainlyIsTurnedAway) {
  make_link({});
  // A liar's handshake says TLS; what follows is none.
  security::Identity identity = identity_;
  identity.purpose = kTcpLinkPurpose;
  identity.from = 1;
  identity.to = 0;
  const posix::UniqueFd fd = std::move(posix::connect_to(address_, kNever).value());
  auto handshake = security::Handshake::connecting(kTestSecret, identity);
  put(fd, handshake.to_send().data(), handshake.to_send().size());
  handshake.to_send().clear();
  std::string challenge(handshake.wanted(), '\0');
  size_t came = 0;
  ASSERT_TRUE(pump([&] {
    came += *posix::receive_some(fd.get(), challenge.data() + came, challenge.size() - came);
    return came == challenge.size();
  }));
  ASSERT_TRUE(handshake.receive(challenge).ok());
  put(fd, handshake.to_send().data(), handshake.to_send().size());
  put(fd, bytes_of(data_header(1, 0)).data(), wire::kHeaderBytes);
  ASSERT_TRUE(pump([&] { return acceptor_->strangers() == 1; }));
  // It holds nobody else up.
  peer_ = connect_with(1, kTestSecret, security::UseTls::kYes);
  ASSERT_TRUE(pump([&] { return link_->can_send(0); }));
}

TEST_F(TlsLinkTest, AGoodbyeAndThenAnyEndIsNoError) {
  for (const bool says_close : {true, false}) {
    connect();
    wire::Header goodbye;
    goodbye.type = wire::MessageType::kGoodbye;
    say(bytes_of(goodbye));
    if (says_close) {
      peer_.tls->close();
      bool writable = true;
      ASSERT_TRUE(peer_.tls->flush(peer_.fd.get(), &writable).ok());
    }
    peer_.fd.reset();
    Arrival arrival;
    ASSERT_TRUE(pump([&] { return link_->receive(&arrival); }));
    EXPECT_EQ(arrival.header.type, wire::MessageType::kGoodbye);
    for (int i = 0; i < 20; ++i) step();
    EXPECT_TRUE(link_->status().ok()) << link_->status().message();
  }
}

TEST_F(TlsLinkTest, AnEndWithoutGoodbyeIsALostPeerAfterAllThatCame) {
  for (const bool says_close : {true, false}) {
    connect();
    say_message(1, 3000);
    say_message(2, 9000);
    if (says_close) {
      peer_.tls->close();
      bool writable = true;
      ASSERT_TRUE(peer_.tls->flush(peer_.fd.get(), &writable).ok());
    }
    peer_.fd.reset();
    Checker checker(link_.get());
    ASSERT_TRUE(pump([&] {
      while (checker.take()) checker.release_all();
      return !link_->status().ok();
    }));
    EXPECT_EQ(checker.received(), 2u);
    const char* how = says_close ? "closed the connection" : "without close_notify";
    expect_status(StatusCode::kPeerLost, {"rank 1 (host-b)", how});
  }
}

TEST_F(TlsLinkTest, AChangedByteIsALostPeer) {
  connect();
  say_message(1, 100);
  // Somebody on the way adds a record of his own.
  const std::string forged = std::string("\x17\x03\x03\x00\x20", 5) + std::string(32, 'f');
  put(peer_.fd, forged.data(), forged.size());
  Checker checker(link_.get());
  ASSERT_TRUE(pump([&] {
    while (checker.take()) checker.release_all();
    return !link_->status().ok();
  }));
  EXPECT_EQ(checker.received(), 1u);
  expect_status(StatusCode::kPeerLost, {"rank 1 (host-b)", "TLS"});
}

TEST_F(TlsLinkTest, ClosingSaysGoodbyeAndCloseNotify) {
  connect();
  const std::vector<std::byte> payload = pattern(1, 50'000);
  link_->send(data_header(1, payload.size()), payload.data(), nullptr);
  std::string came;
  link_->close();
  while (end_.ok()) {
    ASSERT_TRUE(*posix::wait_for(peer_.fd.get(), POLLIN, kNever));
    came += take();
  }
  EXPECT_EQ(end_.code(), StatusCode::kClosed) << end_.message();
  ASSERT_EQ(came.size(), payload.size() + 2 * wire::kHeaderBytes);
  const auto last = std::as_bytes(std::span(came)).last<wire::kHeaderBytes>();
  EXPECT_EQ(wire::decode(last)->type, wire::MessageType::kGoodbye);
}

TEST(TlsConnecting, AForkedChildLetsGoInSilence) {
  auto fabric = std::make_unique<TcpFabric>(2, security::UseTls::kYes);
  Feeder feeder(&fabric->link(0, 1));
  Checker checker(&fabric->link(1, 0));
  const auto exchange = [&](size_t bytes) {
    return pump_until([&] { fabric->step(); }, [&] { return feeder.send(bytes); }) &&
           pump_until([&] { fabric->step(); }, [&] { return checker.take(); });
  };
  ASSERT_TRUE(exchange(100));
  const pid_t child = fork();
  if (child == 0) {
    fabric.reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_TRUE(exchange(5000));
  checker.release_all();
  EXPECT_TRUE(fabric->link(1, 0).status().ok());
}

// Registered before OpenSSL's exit handler, and so run after it.
std::atomic<bool> lingers{false};
std::atomic<int> rounds{0};
const int registered = std::atexit([] {
  if (!lingers.load()) return;
  const int now = rounds.load();
  while (rounds.load() < now + 3) std::this_thread::yield();
});

// What a thread holds when the process leaves stays behind.
void expect_leaks() {
#if defined(__SANITIZE_ADDRESS__)
  __lsan_disable();
#endif
}

// Threads may be at it while a process leaves, when OpenSSL has freed what it needs.
TEST(TlsExit, AProcessMayLeaveWhileAThreadIsSending) {
  ASSERT_EQ(registered, 0);
  for (int round = 0; round < 5; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      auto* moving = new std::promise<void>();
      std::thread([=] {
        expect_leaks();
        for (int made = 0;; ++made) {
          if (made == 3) moving->set_value();
          TcpFabric fabric(2, security::UseTls::kYes);
          Feeder feeder(&fabric.link(0, 1));
          Checker checker(&fabric.link(1, 0));
          // Once the process leaves, nothing comes any more.
          for (int step = 0; step < 20'000 && checker.received() < 20; ++step) {
            fabric.step();
            feeder.send(60'000);
            feeder.spoil();
            while (checker.take()) checker.release_all();
          }
          ++rounds;
        }
      }).detach();
      moving->get_future().wait();
      lingers.store(true);
      std::exit(7);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 7);
  }
}

// A payload is counted when the system has it: what lies encrypted in this process may still be
// lost, and must not be taken for sent.
TEST_F(TlsLinkTest, WhatIsOnlyEncryptedIsNotCounted) {
  connect();
  const std::vector<std::byte> payload(60'000);
  uint64_t calls = 0;
  while (link_->can_send(payload.size())) {
    link_->send(data_header(1, payload.size()), payload.data(), nullptr);
    ++calls;
  }
  const uint64_t before = link_->sent();
  EXPECT_LT(before, calls);
  size_t came = take().size();
  // All that the system has taken, and not a byte more, comes to the peer.
  for (std::string more = take(); !more.empty(); more = take()) came += more.size();
  EXPECT_GE(came, before * (wire::kHeaderBytes + payload.size()));
  EXPECT_LT(came, (before + 1) * (wire::kHeaderBytes + payload.size()) + wire::kHeaderBytes);
  peer_.fd.reset();
  ASSERT_TRUE(pump([&] { return !link_->status().ok(); }));
  EXPECT_LT(link_->sent(), calls);
}

}  // namespace
}  // namespace ciuic::transport::tcp
