// SPDX-License-Identifier: Apache-2.0
// dial_test.cc: who is turned away before the proof may ask again, a bounded number of times.

#include "bootstrap/dial.h"

#include <gtest/gtest.h>

#include <thread>

#include "drivers/posix/socket.h"

namespace ciuic::bootstrap {
namespace {

const std::string kSecret(32, 's');

TimeNs soon() { return deadline_after(now_ns(), 20'000); }

security::Identity identity_of(int from, int to) {
  security::Identity identity;
  identity.job = "test";
  identity.from = from;
  identity.to = to;
  return identity;
}

// Hangs up on the first `rude` who connect and proves itself to the next; both as often as asked.
class Doorman {
 public:
  explicit Doorman(int rude, int polite)
      : listener_(std::move(*posix::listen_at({"127.0.0.1", 0}))), thread_([this, rude, polite] {
          for (int visitor = 0; visitor < rude + polite; ++visitor) {
            EXPECT_TRUE(*posix::wait_for(listener_.get(), POLLIN, soon()));
            posix::UniqueFd fd = std::move(*posix::accept_from(listener_.get()));
            if (visitor < rude) continue;
            Channel channel(std::move(fd),
                            security::Handshake::accepting(kSecret, identity_of(-1, 0)), 100);
            while (!channel.proven() && channel.progress().ok()) {
              [[maybe_unused]] const auto ready =
                  posix::wait_for(channel.fd(), channel.events(), soon());
            }
          }
        }) {}
  ~Doorman() { thread_.join(); }
  posix::Address address() const { return *posix::local_address(listener_.get()); }

 private:
  posix::UniqueFd listener_;
  std::thread thread_;
};

void drive(Dial* dial) {
  const TimeNs limit = soon();
  while (!dial->any_proven() && !dial->settled() && now_ns() < limit) {
    std::vector<pollfd> fds;
    dial->add_to(&fds);
    ASSERT_TRUE(wait_for_any(&fds, std::min(limit, dial->next_try())).ok());
    dial->progress();
  }
}

TEST(Dial, AsksAgainWhereItIsTurnedAway) {
  Doorman doorman(/*rude=*/5, /*polite=*/1);
  Dial dial({doorman.address()}, kSecret, identity_of(1, 0), 100);
  dial.ask_again(5);
  drive(&dial);
  EXPECT_TRUE(dial.any_proven()) << dial.failures();
}

TEST(Dial, DoesNotAskForEver) {
  Doorman doorman(/*rude=*/4, /*polite=*/0);
  Dial dial({doorman.address()}, kSecret, identity_of(1, 0), 100);
  dial.ask_again(3);
  drive(&dial);
  EXPECT_TRUE(dial.settled());
  EXPECT_FALSE(dial.any_proven());
  EXPECT_EQ(dial.next_try(), kNever);
  EXPECT_EQ(dial.attempts()[0].status.code(), StatusCode::kPeerLost);
}

TEST(Dial, DoesNotAskAgainWhereNobodyListens) {
  posix::UniqueFd gone = std::move(*posix::listen_at({"127.0.0.1", 0}));
  const posix::Address address = *posix::local_address(gone.get());
  gone.reset();
  Dial dial({address}, kSecret, identity_of(1, 0), 100);
  dial.ask_again(1'000'000);
  drive(&dial);
  EXPECT_TRUE(dial.settled());
  EXPECT_NE(dial.failures().find("ECONNREFUSED"), std::string::npos) << dial.failures();
}

}  // namespace
}  // namespace ciuic::bootstrap
