// SPDX-License-Identifier: Apache-2.0
// tls_socket_test.cc: over a socket pair: full sockets, edges, and ends.

#include "security/tls_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>
#include <string>
#include <vector>

#include "drivers/posix/socket.h"
#include "drivers/posix/unique_fd.h"

namespace ciuic::security {
namespace {

class TlsSocketTest : public testing::Test {
 protected:
  TlsSocketTest() { make(); }

  void make() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    for (int i = 0; i < 2; ++i) {
      fds_[i].reset(fds[i]);
      TlsOptions options;
      options.accepts = i == 1;
      options.key = std::string(32, 'k');
      ends_[i] = std::move(*TlsSocket::create(options));
    }
  }

  void shake_hands() {
    bool done[2] = {};
    for (int i = 0; i < 1000 && !(done[0] && done[1]); ++i) {
      Result<bool> one = ends_[i % 2]->shake_hands(fds_[i % 2].get());
      ASSERT_TRUE(one.ok()) << one.status().message();
      done[i % 2] = *one;
    }
    ASSERT_TRUE(done[0] && done[1]);
  }

  // Reads into two parts, of which the first is small.
  Result<std::string> receive(int end, bool* readable) {
    std::string first(10, '\0');
    std::string second(100'000, '\0');
    const iovec parts[] = {{first.data(), first.size()}, {second.data(), second.size()}};
    Result<size_t> count = ends_[end]->receive(fds_[end].get(), parts, readable);
    if (!count.ok()) return count.status();
    return (first + second).substr(0, *count);
  }

  bool write(int end, const std::string& text) {
    return *ends_[end]->write(std::as_bytes(std::span(text.data(), text.size())));
  }

  posix::UniqueFd fds_[2];
  std::unique_ptr<TlsSocket> ends_[2];
};

TEST_F(TlsSocketTest, MovesMoreThanTheSocketHolds) {
  shake_hands();
  std::mt19937 random(1);
  std::string text(3'000'000, '\0');
  for (char& c : text) c = static_cast<char>(random());
  std::string came;
  size_t written = 0;
  bool writable = true;
  bool was_full = false;
  while (came.size() < text.size()) {
    while (written < text.size() && write(0, text.substr(written, kTlsRecordBytes))) {
      written += std::min(kTlsRecordBytes, text.size() - written);
    }
    ASSERT_TRUE(ends_[0]->flush(fds_[0].get(), &writable).ok());
    was_full = was_full || !writable;
    if (writable && written < text.size()) continue;  // until the socket is full
    bool readable = true;
    while (readable) {
      Result<std::string> part = receive(1, &readable);
      ASSERT_TRUE(part.ok()) << part.status().message();
      came += *part;
    }
    writable = true;  // as epoll would say
  }
  EXPECT_TRUE(was_full);
  EXPECT_EQ(came, text);
  EXPECT_EQ(ends_[0]->flushed(), ends_[0]->produced());
}

// An edge-triggered poller tells of bytes once. What lies in OpenSSL, or in the buffer before it,
// when the caller has no more room, must still be there for the next call without another edge.
TEST_F(TlsSocketTest, IsReadableUntilNothingIsLeftAnywhere) {
  shake_hands();
  ASSERT_TRUE(write(0, std::string(10'000, 'a')));
  ASSERT_TRUE(write(0, std::string(5'000, 'b')));
  bool writable = true;
  ASSERT_TRUE(ends_[0]->flush(fds_[0].get(), &writable).ok());
  std::string came;
  bool readable = true;
  while (readable) {
    char few[7];
    const iovec part = {few, sizeof few};
    Result<size_t> count = ends_[1]->receive(fds_[1].get(), {&part, 1}, &readable);
    ASSERT_TRUE(count.ok());
    came.append(few, *count);
  }
  EXPECT_EQ(came, std::string(10'000, 'a') + std::string(5'000, 'b'));
}

TEST_F(TlsSocketTest, AGoodEndAndACutOneDiffer) {
  for (const bool says : {true, false}) {
    make();
    shake_hands();
    ASSERT_TRUE(write(0, "last"));
    if (says) ends_[0]->close();
    bool writable = true;
    ASSERT_TRUE(ends_[0]->flush(fds_[0].get(), &writable).ok());
    fds_[0].reset();
    bool readable = true;
    EXPECT_EQ(*receive(1, &readable), "last");
    Result<std::string> end = receive(1, &readable);
    EXPECT_EQ(end.status().code(), says ? StatusCode::kClosed : StatusCode::kPeerLost)
        << end.status().message();
    EXPECT_EQ(receive(1, &readable).status().code(), end.status().code());
  }
}

TEST_F(TlsSocketTest, APeerThatLeavesInTheHandshakeIsLost) {
  ASSERT_FALSE(*ends_[0]->shake_hands(fds_[0].get()));
  fds_[1].reset();
  EXPECT_EQ(ends_[0]->shake_hands(fds_[0].get()).status().code(), StatusCode::kPeerLost);
}

}  // namespace
}  // namespace ciuic::security
