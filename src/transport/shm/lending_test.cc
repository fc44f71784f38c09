// SPDX-License-Identifier: Apache-2.0
// lending_test.cc: payloads that are read in their owner's tensor: when, for how long, and what
// remains of it.

#include "transport/shm/lending.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <fstream>
#include <random>
#include <thread>

#include "drivers/posix/fd_passing.h"
#include "transport/shm/borrowing.h"
#include "transport/test_fabric.h"

namespace ciuic::transport {
namespace {

using Tensor = std::shared_ptr<std::byte>;

constexpr size_t kBytes = 50'000;

// Regions that are mapped to be read alone.
size_t readers_mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count +=
        line.find("ciuic-tensors") != std::string::npos && line.find(" r--s ") != std::string::npos;
  }
  return count;
}

class LendingTest : public testing::Test {
 protected:
  Link& link(int from, int to) { return fabric_->link(from, to); }

  Tensor allocate(size_t bytes) { return std::move(fabric_->pool(0).allocate(bytes).value()); }

  // Message `number` from rank 0, as it lies in the tensor.
  void send(uint32_t number, const std::byte* payload, size_t bytes, int to = 1) {
    ASSERT_TRUE(link(0, to).can_send(bytes));
    link(0, to).send(data_header(number, bytes), payload, nullptr);
  }

  Arrival receive(int at = 1) {
    Arrival arrival;
    EXPECT_TRUE(link(at, 0).receive(&arrival));
    return arrival;
  }

  // The first use: copied, and the region offered and mapped.
  void introduce(const Tensor& tensor, int to = 1) {
    send(1, tensor.get(), kBytes, to);
    const Arrival arrival = receive(to);
    EXPECT_FALSE(arrival.borrowed);
    link(to, 0).release(arrival.token);
  }

  bool is_lent(const std::byte* payload, size_t bytes) {
    send(1, payload, bytes);
    const Arrival arrival = receive();
    EXPECT_EQ(std::memcmp(arrival.data, payload, bytes), 0);
    link(1, 0).release(arrival.token);
    Arrival none;
    EXPECT_FALSE(link(0, 1).receive(&none));  // sees what was returned
    return arrival.borrowed;
  }

  // What a driver does: a step, and where nothing moves, sleep.
  void step_or_sleep(int self, const std::function<bool()>& step) {
    if (step()) return;
    shm::Segment& segment = fabric_->segment(self);
    segment.set_sleeping(true);
    if (!step()) {
      const TimeNs before = now_ns();
      fabric_->poller(self)->poll(20'000);
      EXPECT_LT(now_ns() - before, TimeNs{15} * 1'000'000'000) << "slept through a wake-up";
    }
    segment.set_sleeping(false);
  }

  std::unique_ptr<ShmFabric> fabric_ = std::make_unique<ShmFabric>(2, false);
};

TEST_F(LendingTest, FromItsSecondUseOnATensorIsReadWhereItLies) {
  const Tensor tensor = allocate(1 << 20);
  introduce(tensor);
  EXPECT_EQ(link(0, 1).sent(), 1u);
  send(2, tensor.get() + 4096, kBytes);
  const Arrival arrival = receive();
  EXPECT_TRUE(arrival.borrowed);
  expect_header(arrival.header, data_header(2, kBytes));
  // It is the very memory, at another address.
  tensor.get()[4096 + 7] = std::byte{0x77};
  EXPECT_EQ(arrival.data[7], std::byte{0x77});
  EXPECT_EQ(readers_mappings(), 1u);
}

TEST_F(LendingTest, TheSenderKeepsAPayloadUntilItIsReturned) {
  const Tensor tensor = allocate(1 << 20);
  introduce(tensor);
  Arrival none;
  Arrival arrivals[3];
  for (Arrival& arrival : arrivals) {
    send(1, tensor.get(), kBytes);
    arrival = receive();
  }
  send(1, tensor.get(), 8);  // copied, and yet after the others
  EXPECT_EQ(link(0, 1).sent(), 1u);
  link(1, 0).release(arrivals[1].token);
  EXPECT_FALSE(link(0, 1).receive(&none));
  EXPECT_EQ(link(0, 1).sent(), 1u);
  link(1, 0).release(arrivals[0].token);
  EXPECT_FALSE(link(0, 1).receive(&none));
  EXPECT_EQ(link(0, 1).sent(), 3u);
  link(1, 0).release(arrivals[2].token);
  EXPECT_FALSE(link(0, 1).receive(&none));
  EXPECT_EQ(link(0, 1).sent(), 5u);
}

TEST_F(LendingTest, OnlyLargePayloadsWithinATensorAreLent) {
  const Tensor tensor = allocate(300'000);
  introduce(tensor);
  EXPECT_TRUE(is_lent(tensor.get(), shm::kMostCopiedBytes + 1));
  EXPECT_TRUE(is_lent(tensor.get() + 300'000 - kBytes, kBytes));
  EXPECT_TRUE(is_lent(tensor.get() + 3, kBytes));  // at any address
  EXPECT_FALSE(is_lent(tensor.get(), shm::kMostCopiedBytes));
  const std::vector<std::byte> ordinary = pattern(1, kBytes);
  EXPECT_FALSE(is_lent(ordinary.data(), kBytes));
}

TEST_F(LendingTest, EachPeerHasItsOwnMapping) {
  fabric_ = std::make_unique<ShmFabric>(3, false);
  const Tensor tensor = allocate(1 << 20);
  introduce(tensor, 1);
  introduce(tensor, 2);
  send(1, tensor.get(), kBytes, 1);
  send(1, tensor.get(), kBytes, 2);
  EXPECT_TRUE(receive(1).borrowed);
  EXPECT_TRUE(receive(2).borrowed);
  EXPECT_EQ(readers_mappings(), 2u);
}

TEST_F(LendingTest, NoMoreIsLentThanTheReaderCanHold) {
  const Tensor tensor = allocate(1 << 20);
  introduce(tensor);
  std::vector<Arrival> held;
  for (uint64_t i = 0; i < shm::kMostLent; ++i) {
    send(1, tensor.get(), kBytes);
    held.push_back(receive());
    EXPECT_TRUE(held.back().borrowed);
  }
  send(1, tensor.get(), kBytes);
  const Arrival copied = receive();
  EXPECT_FALSE(copied.borrowed);
  link(1, 0).release(copied.token);
  for (const Arrival& arrival : held) link(1, 0).release(arrival.token);
  Arrival none;
  EXPECT_FALSE(link(0, 1).receive(&none));
  EXPECT_EQ(link(0, 1).sent(), 2 + shm::kMostLent);
  EXPECT_TRUE(is_lent(tensor.get(), kBytes));
}

TEST_F(LendingTest, TheReadersMappingGoesWithTheTensor) {
  for (int round = 0; round < 3 * shm::kPlaces; ++round) {
    Tensor tensor = allocate(300'000);
    introduce(tensor);
    ASSERT_TRUE(is_lent(tensor.get(), kBytes)) << round;
    EXPECT_EQ(readers_mappings(), 1u);
    tensor.reset();  // no group uses the pool, so it keeps nothing
    EXPECT_EQ(fabric_->pool(0).held(), 0u);
    fabric_->step(0);
    fabric_->step(1);
    EXPECT_EQ(readers_mappings(), 0u);
  }
}

TEST_F(LendingTest, AReaderMapsABoundedNumber) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < shm::kPlaces + 5; ++i) {
    tensors.push_back(allocate(300'000));
    introduce(tensors.back());
    ASSERT_EQ(is_lent(tensors.back().get(), kBytes), i < shm::kPlaces) << i;
  }
  EXPECT_EQ(readers_mappings(), static_cast<size_t>(shm::kPlaces));
  // One that nobody has used for long makes room for a new one that is used.
  const Tensor& last = tensors.back();
  for (int i = 0; i < 1100; ++i) ASSERT_TRUE(is_lent(tensors[1].get(), kBytes));
  bool is = false;
  for (int i = 0; i < 10 && !is; ++i) {
    is = is_lent(last.get(), kBytes);
    fabric_->step(1);
  }
  EXPECT_TRUE(is);
  EXPECT_EQ(readers_mappings(), static_cast<size_t>(shm::kPlaces));
}

TEST_F(LendingTest, ALateReaderSeesThatTheSenderHasLeft) {
  const Tensor tensor = allocate(1 << 20);
  introduce(tensor);
  send(1, tensor.get(), kBytes);
  const Arrival arrival = receive();
  EXPECT_TRUE(link(1, 0).is_intact(arrival.token));
  link(0, 1).close();
  EXPECT_EQ(link(0, 1).sent(), 2u);  // the payload is the caller's again
  EXPECT_FALSE(link(1, 0).is_intact(arrival.token));
}

TEST_F(LendingTest, WhatWasReturnedBeforeTheSenderLeftIsIntact) {
  const Tensor tensor = allocate(1 << 20);
  introduce(tensor);
  send(1, tensor.get(), kBytes);
  const Arrival arrival = receive();
  link(1, 0).release(arrival.token);
  link(0, 1).close();
  EXPECT_TRUE(link(1, 0).is_intact(arrival.token));
}

// As with a slot: who has left in good order wants no more, and holds nothing up.
TEST_F(LendingTest, ThePeersGoodbyeReturnsWhatItHeld) {
  const Tensor tensor = allocate(1 << 20);
  introduce(tensor);
  send(1, tensor.get(), kBytes);
  const Arrival arrival = receive();
  link(1, 0).close();
  EXPECT_EQ(arrival.data[kBytes - 1], tensor.get()[kBytes - 1]);  // still mapped
  fabric_->step(0);
  Arrival goodbye;
  ASSERT_TRUE(link(0, 1).receive(&goodbye));
  EXPECT_EQ(link(0, 1).sent(), 2u);
}

TEST_F(LendingTest, TheDeathOfThePeerReturnsNothing) {
  const Tensor tensor = allocate(1 << 20);
  introduce(tensor);
  send(1, tensor.get(), kBytes);
  shutdown(fabric_->socket(1, 0), SHUT_RDWR);
  fabric_->step(0);
  Arrival none;
  EXPECT_FALSE(link(0, 1).receive(&none));
  EXPECT_EQ(link(0, 1).status().code(), StatusCode::kPeerLost);
  EXPECT_EQ(link(0, 1).sent(), 1u);
}

TEST_F(LendingTest, MappingsAndDescriptorsComeBack) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 10; ++i) {
    tensors.push_back(allocate(300'000));
    introduce(tensors.back());
  }
  send(1, tensors[0].get(), kBytes);
  const Arrival held = receive();
  EXPECT_EQ(readers_mappings(), 10u);
  link(1, 0).close();
  EXPECT_EQ(readers_mappings(), 1u);  // what was given out may still be read
  EXPECT_EQ(held.data[0], tensors[0].get()[0]);
  fabric_->drop_links();
  EXPECT_EQ(readers_mappings(), 0u);
}

TEST_F(LendingTest, AReturnThatCannotBeEndsTheLink) {
  const Tensor tensor = allocate(1 << 20);
  introduce(tensor);
  send(1, tensor.get(), kBytes);
  fabric_->segment(1).view().feedback(0).returned.store(2);
  Arrival none;
  EXPECT_FALSE(link(0, 1).receive(&none));
  EXPECT_EQ(link(0, 1).status().code(), StatusCode::kMismatch);
  EXPECT_NE(link(0, 1).status().message().find("rank 1"), std::string::npos);
}

TEST_F(LendingTest, NonsenseOnTheSocketEndsTheLink) {
  const std::vector<shm::Notice> nonsense = {
      {.kind = 'x', .place = 0, .bytes = 4096},
      {.kind = shm::kLends, .place = 64, .bytes = 4096},
      {.kind = shm::kLends, .place = 0, .bytes = 0},
      {.kind = shm::kTakesBack, .place = 0},
  };
  for (const shm::Notice& notice : nonsense) {
    fabric_ = std::make_unique<ShmFabric>(2, false);
    ASSERT_EQ(posix::send_with_fds(fabric_->socket(0, 1), &notice, sizeof notice, {}).value(),
              sizeof notice);
    fabric_->step(1);
    EXPECT_EQ(link(1, 0).status().code(), StatusCode::kMismatch) << notice.kind;
  }
}

TEST_F(LendingTest, ALineThatNamesWhatIsNotThereEndsTheLink) {
  const std::vector<shm::Line::LentReference> nonsense = {
      {0, 1, 50'000}, {0, 64, 8}, {(1 << 20) - 8, 0, 9}, {~uint64_t{0}, 0, 1}, {0, 0, 0xffffffff}};
  for (const shm::Line::LentReference& reference : nonsense) {
    fabric_ = std::make_unique<ShmFabric>(2, false);
    const Tensor tensor = allocate(1 << 20);
    introduce(tensor);
    shm::Line& line = fabric_->segment(0).view().ring(1)[2];
    line.type = static_cast<uint8_t>(wire::MessageType::kData);
    line.bytes = shm::kLent << shm::kPayloadShift;
    line.payload.lent = reference;
    line.flag.store(2);
    Arrival arrival;
    EXPECT_FALSE(link(1, 0).receive(&arrival));
    EXPECT_EQ(link(1, 0).status().code(), StatusCode::kMismatch) << reference.offset;
  }
}

// The reader's side alone.
TEST(Borrower, WhatCannotBeMappedIsRefusedAndNoMore) {
  auto feedback = std::make_unique<shm::Feedback>();
  shm::Borrower borrower(feedback.get());
  const int unsealed = memfd_create("test", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(unsealed, 8192), 0);
  EXPECT_TRUE(borrower.take({.kind = shm::kLends, .place = 3, .bytes = 8192}, {}));
  EXPECT_TRUE(
      borrower.take({.kind = shm::kLends, .place = 4, .bytes = 8192}, posix::UniqueFd(unsealed)));
  auto shorter = posix::create_memfd("test", 4096);
  EXPECT_TRUE(
      borrower.take({.kind = shm::kLends, .place = 5, .bytes = 8192}, std::move(shorter.value())));
  EXPECT_EQ(feedback->mapped.load(), 0u);
  EXPECT_EQ(feedback->refused.load(), 0b111000u);
  uint64_t number = 0;
  EXPECT_EQ(borrower.borrow({0, 3, 1}, &number), nullptr);
  EXPECT_TRUE(borrower.take({.kind = shm::kTakesBack, .place = 3}, {}));
  EXPECT_EQ(feedback->refused.load(), 0b110000u);
}

TEST(Borrower, KeepsAMappingThatIsReadUntilItIsGivenBack) {
  auto feedback = std::make_unique<shm::Feedback>();
  shm::Borrower borrower(feedback.get());
  auto fd = posix::create_memfd("ciuic-tensors", 8192);
  ASSERT_TRUE(
      borrower.take({.kind = shm::kLends, .place = 9, .bytes = 8192}, std::move(fd.value())));
  EXPECT_EQ(feedback->mapped.load(), uint64_t{1} << 9);
  uint64_t first = 0;
  uint64_t second = 0;
  const std::byte* data = borrower.borrow({100, 9, 8092}, &first);
  ASSERT_NE(data, nullptr);
  ASSERT_NE(borrower.borrow({0, 9, 8192}, &second), nullptr);
  EXPECT_TRUE(borrower.take({.kind = shm::kTakesBack, .place = 9}, {}));
  EXPECT_FALSE(borrower.take({.kind = shm::kTakesBack, .place = 9}, {}));
  EXPECT_EQ(borrower.borrow({0, 9, 1}, &second), nullptr);  // no more of it
  EXPECT_FALSE(borrower.give_back(second));
  EXPECT_EQ(data[8091], std::byte{0});
  EXPECT_EQ(feedback->mapped.load(), uint64_t{1} << 9);
  EXPECT_TRUE(borrower.give_back(first));
  EXPECT_EQ(feedback->returned.load(), 2u);
  EXPECT_EQ(feedback->mapped.load(), 0u);
  EXPECT_EQ(borrower.mapped_bytes(), 0u);
}

TEST(Lender, WhereThePeerRefusesPayloadsAreCopiedForGood) {
  const auto pool = memory::SharedPool::create();
  const Tensor tensor = std::move(pool->allocate(1 << 20).value());
  shm::OwnRegions regions(pool);
  auto feedback = std::make_unique<shm::Feedback>();
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  const posix::UniqueFd socket(fds[0]);
  const posix::UniqueFd peer(fds[1]);
  shm::Lender lender(&regions, feedback.get(), socket.get());
  EXPECT_FALSE(lender.lend(tensor.get(), kBytes, 1).has_value());
  EXPECT_TRUE(lender.take_has_told());
  EXPECT_FALSE(lender.take_has_told());
  feedback->refused.store(1);
  for (uint64_t call = 2; call < 5; ++call) {
    EXPECT_FALSE(lender.lend(tensor.get(), kBytes, call).has_value());
  }
  EXPECT_FALSE(lender.take_has_told());  // and it is not offered again
}

// A full socket holds nothing up: it is offered later.
TEST(Lender, AFullSocketOnlyDelaysTheOffer) {
  const auto pool = memory::SharedPool::create();
  const Tensor tensor = std::move(pool->allocate(1 << 20).value());
  shm::OwnRegions regions(pool);
  auto feedback = std::make_unique<shm::Feedback>();
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  const posix::UniqueFd socket(fds[0]);
  const posix::UniqueFd peer(fds[1]);
  const std::vector<char> filling(100'000);
  while (::send(socket.get(), filling.data(), filling.size(), MSG_DONTWAIT) > 0) {
  }
  while (::send(socket.get(), filling.data(), 1, MSG_DONTWAIT) > 0) {
  }
  shm::Lender lender(&regions, feedback.get(), socket.get());
  EXPECT_FALSE(lender.lend(tensor.get(), kBytes, 1).has_value());
  EXPECT_FALSE(lender.take_has_told());
  std::vector<char> taken(100'000);
  while (::recv(peer.get(), taken.data(), taken.size(), MSG_DONTWAIT) > 0) {
  }
  EXPECT_FALSE(lender.lend(tensor.get(), kBytes, 2).has_value());
  EXPECT_TRUE(lender.take_has_told());
}

// The sender spoils what it may; the reader holds payloads for a while, gives them back in any
// order, and looks at each once more before. Both sleep when they have nothing to do.
TEST_F(LendingTest, NothingIsSpoiltThatIsStillRead) {
  const int rounds = 3000;
  const Tensor tensor = allocate(64 * 65'536);
  std::atomic<int> lent{0};
  std::thread reader([&] {
    std::mt19937 random(5);
    std::vector<std::pair<uint32_t, Arrival>> held;
    uint32_t received = 0;
    const auto check = [](uint32_t number, const Arrival& arrival) {
      const auto expected = pattern(number, arrival.header.payload_bytes);
      ASSERT_EQ(std::memcmp(arrival.data, expected.data(), expected.size()), 0) << number;
    };
    const auto step = [&] {
      link(1, 0).progress();
      Arrival arrival;
      bool moved = false;
      while (link(1, 0).receive(&arrival)) {
        held.emplace_back(++received, arrival);
        check(received, arrival);
        lent += arrival.borrowed ? 1 : 0;
        moved = true;
      }
      // It does not go to sleep on what the sender may be waiting for.
      while (held.size() > random() % 6 || (!moved && !held.empty())) {
        std::swap(held[random() % held.size()], held.back());
        check(held.back().first, held.back().second);
        link(1, 0).release(held.back().second.token);
        held.pop_back();
        moved = true;
      }
      return moved;
    };
    while (received < rounds || !held.empty()) {
      step_or_sleep(1, step);
    }
  });
  std::mt19937 random(6);
  uint32_t sent = 0;
  uint64_t spoilt = 0;
  std::vector<size_t> sizes;
  const auto step = [&] {
    Arrival none;
    while (link(0, 1).receive(&none)) {
    }
    bool moved = false;
    for (; spoilt < link(0, 1).sent(); ++spoilt, moved = true) {
      std::memset(tensor.get() + spoilt % 64 * 65'536, 0xdd, sizes[spoilt]);
    }
    while (sent < rounds && sent - spoilt < 64) {
      const size_t bytes = 16'000 + random() % 40'000;
      if (!link(0, 1).can_send(bytes)) break;
      std::byte* place = tensor.get() + sent % 64 * 65'536;
      const auto payload = pattern(sent + 1, bytes);
      std::memcpy(place, payload.data(), bytes);
      sizes.push_back(bytes);
      link(0, 1).send(data_header(++sent, bytes), place, nullptr);
      moved = true;
    }
    return moved;
  };
  while (spoilt < rounds) step_or_sleep(0, step);
  reader.join();
  EXPECT_GT(lent, rounds / 4);
}

}  // namespace
}  // namespace ciuic::transport
