// SPDX-License-Identifier: Apache-2.0
// pair_test.cc: one half of a pair, with a process at the other end that passes what it should not.

#include "transport/shm/pair.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cstring>
#include <filesystem>
#include <iterator>

namespace ciuic::transport {
namespace {

std::shared_ptr<shm::Segment> segment_of(int rank) {
  shm::SegmentOwner owner;
  owner.rank = rank;
  owner.ranks = {0, 1};
  return std::move(*shm::Segment::create(owner));
}

size_t open_descriptors() {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

class HalfPair : public testing::Test {
 protected:
  HalfPair() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    pair_.proven(posix::UniqueFd(fds[0]));
    peer_.reset(fds[1]);
  }

  // An offer as honest ranks make it.
  std::string offer() const {
    std::string bytes = "ciuicofr";
    const uint32_t numbers[] = {shm::kSegmentVersion, static_cast<uint32_t>(theirs_->bytes())};
    return bytes.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
  }

  void pass(std::string_view bytes, const std::vector<int>& fds) {
    const Result<size_t> sent = posix::send_with_fds(peer_.get(), bytes.data(), bytes.size(), fds);
    ASSERT_TRUE(sent.ok() && *sent == bytes.size());
    pair_.progress();
  }

  // The rest of the conversation, as the honest ones have it.
  void finish() {
    const shm::Nonce& nonce = mine_->nonce();
    pass({reinterpret_cast<const char*>(&nonce), sizeof nonce}, {});
    std::string verdict(256, '\0');
    verdict[0] = '\1';
    pass(verdict, {});
    ASSERT_TRUE(pair_.settled());
  }

  std::shared_ptr<shm::Segment> mine_ = segment_of(0);
  std::shared_ptr<shm::Segment> theirs_ = segment_of(1);
  posix::UniqueFd bell_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  shm::Pair pair_{mine_, 1, bell_.get()};
  posix::UniqueFd peer_;
};

TEST_F(HalfPair, AnHonestPeerIsTaken) {
  pass(offer(), {theirs_->fd(), bell_.get()});
  finish();
  EXPECT_TRUE(pair_.reason().ok()) << pair_.reason().message();
}

TEST_F(HalfPair, DescriptorsThatAreTooManyAreNotKept) {
  const size_t before = open_descriptors();
  const int fd = theirs_->fd();
  for (const char byte : offer()) pass(std::string(1, byte), {fd, fd, fd, fd});
  EXPECT_LE(open_descriptors(), before + 4);
  finish();
  EXPECT_EQ(pair_.reason().code(), StatusCode::kMismatch) << pair_.reason().message();
  EXPECT_LT(open_descriptors(), before);  // its socket is closed, too
}

TEST_F(HalfPair, DescriptorsThatComeLaterAreNotKept) {
  pass(offer(), {theirs_->fd(), bell_.get()});
  const size_t before = open_descriptors();
  const shm::Nonce& nonce = mine_->nonce();
  const std::string proof(reinterpret_cast<const char*>(&nonce), sizeof nonce);
  const int fd = theirs_->fd();
  for (const char byte : proof) pass(std::string(1, byte), {fd, fd, fd, fd});
  EXPECT_LE(open_descriptors(), before + 4);
}

TEST_F(HalfPair, ADoorbellThatCouldBlockIsRefused) {
  int pipe_ends[2] = {-1, -1};
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  const posix::UniqueFd read_end(pipe_ends[0]);
  const posix::UniqueFd write_end(pipe_ends[1]);
  pass(offer(), {theirs_->fd(), write_end.get()});
  finish();
  EXPECT_EQ(pair_.reason().code(), StatusCode::kMismatch) << pair_.reason().message();
}

}  // namespace
}  // namespace ciuic::transport
