// SPDX-License-Identifier: Apache-2.0
// shm_link_test.cc: what only shared memory has: the segment, its doorbell, and a peer that writes
// nonsense into its own.

#include "transport/shm/shm_link.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <random>
#include <thread>

#include "transport/test_fabric.h"

namespace ciuic::transport {
namespace {

using shm::SegmentLayout;

TEST(SegmentLayout, FitsForEveryNumberOfRanks) {
  for (int ranks = 2; ranks <= shm::kMaxLocalRanks; ++ranks) {
    const SegmentLayout layout = SegmentLayout::for_ranks(ranks);
    EXPECT_LE(layout.bytes, shm::kMaxSegmentBytes);
    EXPECT_GE(layout.large_slots, 2);
    // Nothing overlaps: the end of each part is before the next one's beginning.
    std::vector<std::byte> memory(layout.bytes + 64);
    auto* base =
        reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    const shm::SegmentView view(base, layout);
    const auto at = [&](const void* place) {
      return static_cast<size_t>(static_cast<const std::byte*>(place) - base);
    };
    EXPECT_GE(at(view.ring(0)), sizeof(shm::SegmentHeader));
    EXPECT_LE(at(view.ring(ranks - 1) + shm::kLines), at(&view.feedback(0)));
    EXPECT_LE(at(&view.feedback(ranks - 1) + 1), at(view.slot(0)));
    for (int slot = 1; slot < layout.slot_count(); ++slot) {
      EXPECT_EQ(at(view.slot(slot)), at(view.slot(slot - 1)) + shm::slot_bytes(slot - 1));
    }
    const int last = layout.slot_count() - 1;
    EXPECT_EQ(at(view.slot(last)) + shm::slot_bytes(last), layout.bytes);
  }
}

shm::SegmentOwner owner_of_two() {
  shm::SegmentOwner owner;
  owner.epoch = 3;
  owner.group = 7;
  owner.rank = 4;
  owner.ranks = {4, 9};
  return owner;
}

TEST(Segment, IsSealedAndReadOnlyForOthers) {
  const auto segment = shm::Segment::create(owner_of_two()).value();
  EXPECT_TRUE(posix::check_sealed(segment->fd(), segment->bytes()).ok());
  EXPECT_EQ(posix::check_sealed(segment->fd(), segment->bytes() - 1).code(), StatusCode::kMismatch);
  EXPECT_NE(ftruncate(segment->fd(), 4096), 0);
  EXPECT_FALSE(posix::Mapping::map(segment->fd(), segment->bytes(), true).ok());
  EXPECT_TRUE(posix::Mapping::map(segment->fd(), segment->bytes(), false).ok());
  EXPECT_EQ(segment->index_of(9), 1);
  EXPECT_EQ(segment->index_of(5), -1);
}

TEST(Segment, RefusesAnotherGroupsRanksOrOwnersByName) {
  const auto segment = shm::Segment::create(owner_of_two()).value();
  const posix::Mapping mapping =
      std::move(posix::Mapping::map(segment->fd(), segment->bytes(), false).value());
  shm::SegmentOwner mine = owner_of_two();
  mine.rank = 9;
  EXPECT_TRUE(shm::check_segment(mapping, mine, 4).ok());
  const auto refused = [&](const shm::SegmentOwner& other, int rank, const char* what) {
    const Result<shm::SegmentView> view = shm::check_segment(mapping, other, rank);
    ASSERT_FALSE(view.ok());
    EXPECT_EQ(view.status().code(), StatusCode::kMismatch);
    EXPECT_NE(view.status().message().find(what), std::string::npos) << view.status().message();
  };
  refused(mine, 9, "rank");
  shm::SegmentOwner other = mine;
  other.epoch = 4;
  refused(other, 4, "epoch");
  other = mine;
  other.group = 8;
  refused(other, 4, "group");
  other = mine;
  other.ranks = {3, 4};
  refused(other, 4, "other ranks");
}

TEST(Segment, SaysHowMuchMemoryIsMissing) {
  // In a child, since the limit cannot be lifted again.
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{1, 1};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    signal(SIGXFSZ, SIG_IGN);
    const auto segment = shm::Segment::create(owner_of_two());
    const bool right = !segment.ok() && segment.status().code() == StatusCode::kResource &&
                       segment.status().message().find("bytes") != std::string::npos;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

class ShmLinkTest : public testing::Test {
 protected:
  Link& link(int from, int to) { return fabric_->link(from, to); }
  bool rung(int rank) {
    pollfd entry{fabric_->poller(rank)->doorbell_fd(), POLLIN, 0};
    const bool is = ::poll(&entry, 1, 0) == 1;
    if (is) fabric_->poller(rank)->poll(0);  // quiet again
    return is;
  }
  void send(int from, int to, size_t bytes) {
    const std::vector<std::byte> payload = pattern(1, bytes);
    ASSERT_TRUE(link(from, to).can_send(bytes));
    link(from, to).send(data_header(1, bytes), payload.data(), nullptr);
  }

  std::unique_ptr<ShmFabric> fabric_ = std::make_unique<ShmFabric>(2, false);
};

TEST_F(ShmLinkTest, RingsOnlyWhoSleeps) {
  send(0, 1, 8);
  EXPECT_FALSE(rung(1));
  fabric_->segment(1).set_sleeping(true);
  send(0, 1, 8);
  EXPECT_TRUE(rung(1));
  fabric_->segment(1).set_sleeping(false);
  send(0, 1, 100);
  EXPECT_FALSE(rung(1));
}

TEST_F(ShmLinkTest, ReleasesRingOnlyWhoWaitsForSpace) {
  Arrival arrival;
  send(0, 1, 60'000);
  fabric_->segment(0).set_sleeping(true);
  ASSERT_TRUE(link(1, 0).receive(&arrival));
  link(1, 0).release(arrival.token);
  EXPECT_FALSE(rung(0));
  fabric_->segment(0).set_sleeping(false);

  // Slots run out, whether that is found before it goes to sleep or after.
  for (const bool asleep_before : {false, true}) {
    if (asleep_before) fabric_->segment(0).set_sleeping(true);
    while (link(0, 1).can_send(60'000)) send(0, 1, 60'000);
    if (!asleep_before) fabric_->segment(0).set_sleeping(true);
    EXPECT_FALSE(rung(0));
    ASSERT_TRUE(link(1, 0).receive(&arrival));
    link(1, 0).release(arrival.token);
    EXPECT_TRUE(rung(0));
    EXPECT_TRUE(link(0, 1).can_send(60'000));
    fabric_->segment(0).set_sleeping(false);
    while (link(1, 0).receive(&arrival)) link(1, 0).release(arrival.token);
  }

  // Lines run out.
  while (link(0, 1).can_send(8)) send(0, 1, 8);
  fabric_->segment(0).set_sleeping(true);
  while (link(1, 0).receive(&arrival)) link(1, 0).release(arrival.token);
  EXPECT_TRUE(rung(0));
  EXPECT_TRUE(link(0, 1).can_send(8));
}

// One thread sleeps whenever it has nothing to do, as the driver does; the other writes now and
// then. A lost wake-up would leave both asleep.
TEST_F(ShmLinkTest, LosesNoWakeUp) {
  fabric_ = std::make_unique<ShmFabric>(2, true);
  const int rounds = 20'000;
  const auto rank = [&](int self) {
    Link& to_peer = link(self, 1 - self);
    posix::Poller* poller = fabric_->poller(self);
    shm::Segment& segment = fabric_->segment(self);
    std::mt19937 random(static_cast<uint32_t>(self));
    int sent = 0;
    int received = 0;
    const auto step = [&] {
      bool moved = false;
      Arrival arrival;
      while (to_peer.receive(&arrival)) {
        to_peer.release(arrival.token);
        ++received;
        moved = true;
      }
      // A ping-pong, with bursts that fill the ring.
      const size_t bytes = random() % 8 == 0 ? 3000 : 8;
      const std::vector<std::byte> payload(bytes);
      while (sent < rounds && sent < received + 100 && to_peer.can_send(bytes)) {
        to_peer.send(data_header(1, bytes), payload.data(), nullptr);
        ++sent;
        moved = true;
      }
      return moved;
    };
    while (sent < rounds || received < rounds) {
      if (step()) continue;
      segment.set_sleeping(true);
      if (!step()) {
        const TimeNs before = now_ns();
        poller->poll(20'000);
        if (now_ns() - before > TimeNs{15} * 1'000'000'000) {
          ADD_FAILURE() << "slept through a wake-up";
          return;
        }
      }
      segment.set_sleeping(false);
    }
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
}

TEST_F(ShmLinkTest, APublishedSlotIsCopiedOnce) {
  fabric_ = std::make_unique<ShmFabric>(3, false);
  const std::vector<std::byte> payload = pattern(1, 50'000);
  Publication publication;
  Arrival arrivals[2];
  for (int reader = 1; reader <= 2; ++reader) {
    ASSERT_TRUE(link(0, reader).can_send(payload.size()));
    link(0, reader).send(data_header(1, payload.size()), payload.data(), &publication);
    ASSERT_TRUE(link(reader, 0).receive(&arrivals[reader - 1]));
  }
  EXPECT_EQ(arrivals[0].token, arrivals[1].token);
}

TEST_F(ShmLinkTest, AnOldPublicationIsCopiedAgain) {
  fabric_ = std::make_unique<ShmFabric>(3, false);
  Checker first(&link(1, 0));
  Checker second(&link(2, 0));
  const std::vector<std::byte> payload = pattern(1, 50'000);
  Publication publication;
  ASSERT_TRUE(link(0, 1).can_send(payload.size()));
  link(0, 1).send(data_header(1, payload.size()), payload.data(), &publication);
  // Meanwhile every slot gets another content.
  for (uint32_t number = 2; number < 30; ++number) {
    while (first.take()) first.release_all();
    const std::vector<std::byte> other = pattern(number, payload.size());
    ASSERT_TRUE(link(0, 1).can_send(other.size()));
    link(0, 1).send(data_header(number, other.size()), other.data(), nullptr);
  }
  ASSERT_TRUE(link(0, 2).can_send(payload.size()));
  link(0, 2).send(data_header(1, payload.size()), payload.data(), &publication);
  ASSERT_TRUE(second.take());
  second.release_all();
}

TEST_F(ShmLinkTest, TheEndOfThePeersProcessEndsTheLinkAfterItsLastMessage) {
  send(0, 1, 8);
  send(0, 1, 60'000);
  shutdown(fabric_->socket(0, 1), SHUT_RDWR);  // as the kernel does for a process that dies
  fabric_->step(1);
  Arrival arrival;
  EXPECT_TRUE(link(1, 0).status().ok());
  EXPECT_FALSE(link(1, 0).can_send(8));
  EXPECT_TRUE(link(1, 0).receive(&arrival));
  EXPECT_TRUE(link(1, 0).receive(&arrival));
  EXPECT_EQ(arrival.header.payload_bytes, 60'000u);
  EXPECT_FALSE(link(1, 0).receive(&arrival));
  fabric_->step(1);
  EXPECT_EQ(link(1, 0).status().code(), StatusCode::kPeerLost);
  EXPECT_NE(link(1, 0).status().message().find("rank 0"), std::string::npos);
}

TEST_F(ShmLinkTest, AGoodbyeArrivesEvenWhereTheRingIsFull) {
  int messages = 0;
  for (; link(0, 1).can_send(0); ++messages) send(0, 1, 0);
  link(0, 1).close();
  fabric_->step(1);
  Arrival arrival;
  for (int i = 0; i < messages; ++i) {
    ASSERT_TRUE(link(1, 0).receive(&arrival));
    EXPECT_EQ(arrival.header.type, wire::MessageType::kData);
  }
  ASSERT_TRUE(link(1, 0).receive(&arrival));
  EXPECT_EQ(arrival.header.type, wire::MessageType::kGoodbye);
  EXPECT_FALSE(link(1, 0).receive(&arrival));
  fabric_->step(1);
  EXPECT_TRUE(link(1, 0).status().ok());
}

// Writes into rank 0's own ring what a faulty or hostile process would.
void write_line(shm::Segment* segment, const std::function<void(shm::Line*)>& spoil) {
  shm::Line& line = segment->view().ring(1)[1];
  line.type = static_cast<uint8_t>(wire::MessageType::kData);
  line.bytes = 8 | uint64_t{8} << shm::kPayloadShift;
  spoil(&line);
  line.flag.store(1);
}

TEST_F(ShmLinkTest, NonsenseInALineEndsTheLinkAndReadsNothingElsewhere) {
  const std::vector<std::function<void(shm::Line*)>> nonsense = {
      [](shm::Line* line) { line->type = 0; },
      [](shm::Line* line) { line->type = static_cast<uint8_t>(wire::kLastMessageType) + 1; },
      [](shm::Line* line) { line->type = 255; },
      [](shm::Line* line) { line->bytes = uint64_t{33} << shm::kPayloadShift; },
      [](shm::Line* line) { line->bytes = uint64_t{254} << shm::kPayloadShift; },
      [](shm::Line* line) {
        line->bytes = shm::kInSlot << shm::kPayloadShift;
        line->payload.reference = {1, 22, 8};
      },
      [](shm::Line* line) {
        line->bytes = shm::kInSlot << shm::kPayloadShift;
        line->payload.reference = {1, 0xffffffff, 8};
      },
      [](shm::Line* line) {
        line->bytes = shm::kInSlot << shm::kPayloadShift;
        line->payload.reference = {1, 0, shm::kSmallSlotBytes + 1};
      },
      [](shm::Line* line) {
        line->bytes = shm::kInSlot << shm::kPayloadShift;
        line->payload.reference = {1, shm::kSmallSlots, 0xffffffff};
      },
      // A payload that nobody would ever give back.
      [](shm::Line* line) { line->type = static_cast<uint8_t>(wire::MessageType::kAck); },
      [](shm::Line* line) {
        line->type = static_cast<uint8_t>(wire::MessageType::kGoodbye);
        line->bytes = shm::kInSlot << shm::kPayloadShift;
        line->payload.reference = {1, 0, 8};
      },
  };
  for (size_t i = 0; i < nonsense.size(); ++i) {
    SCOPED_TRACE(i);
    fabric_ = std::make_unique<ShmFabric>(2, false);
    write_line(&fabric_->segment(0), nonsense[i]);
    Arrival arrival;
    EXPECT_FALSE(link(1, 0).receive(&arrival));
    EXPECT_EQ(link(1, 0).status().code(), StatusCode::kMismatch);
    EXPECT_NE(link(1, 0).status().message().find("rank 0"), std::string::npos);
    EXPECT_FALSE(link(1, 0).receive(&arrival));
    EXPECT_FALSE(link(1, 0).can_send(0));
  }
  // The line as it stands, unspoilt, is a message: the test above tests what it says.
  fabric_ = std::make_unique<ShmFabric>(2, false);
  write_line(&fabric_->segment(0), [](shm::Line*) {});
  Arrival arrival;
  EXPECT_TRUE(link(1, 0).receive(&arrival));
}

TEST_F(ShmLinkTest, RandomLinesNeverCrash) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    fabric_ = std::make_unique<ShmFabric>(2, false);
    auto* ring = fabric_->segment(0).view().ring(1);
    for (uint32_t number = 1; number <= 40; ++number) {
      auto* words = reinterpret_cast<uint64_t*>(&ring[number]);
      for (int word = 0; word < 7; ++word) words[word] = random() & (random() | random());
      if (random() % 2 == 0) ring[number].type = static_cast<uint8_t>(1 + random() % 6);
      ring[number].flag.store(number);
    }
    Arrival arrival;
    uint64_t sum = 0;
    while (link(1, 0).receive(&arrival)) {
      for (uint32_t i = 0; i < arrival.header.payload_bytes; ++i) {
        sum += static_cast<uint64_t>(arrival.data[i]);
      }
      link(1, 0).release(arrival.token);
    }
    EXPECT_LT(sum, ~uint64_t{0});
  }
}

TEST_F(ShmLinkTest, ACountOfReadLinesThatCannotBeEndsTheLink) {
  for (int i = 0; i < 10; ++i) send(0, 1, 8);
  fabric_->segment(1).view().feedback(0).consumed.store(1000);
  while (link(0, 1).can_send(8)) send(0, 1, 8);
  EXPECT_EQ(link(0, 1).status().code(), StatusCode::kMismatch);
  EXPECT_NE(link(0, 1).status().message().find("rank 1"), std::string::npos);
}

// What the child does with the inherited links must not reach the peer.
TEST_F(ShmLinkTest, AForkedChildLetsGoInSilence) {
  const pid_t child = fork();
  if (child == 0) {
    fabric_.reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  fabric_->step();
  Arrival arrival;
  EXPECT_FALSE(link(1, 0).receive(&arrival));
  EXPECT_TRUE(link(1, 0).status().ok());
  send(0, 1, 8);
  EXPECT_TRUE(link(1, 0).receive(&arrival));
  // And the end of the peer is still told: the registration in the poller is untouched.
  shutdown(fabric_->socket(0, 1), SHUT_RDWR);
  fabric_->step(1);
  EXPECT_EQ(link(1, 0).status().code(), StatusCode::kPeerLost);
}

}  // namespace
}  // namespace ciuic::transport
