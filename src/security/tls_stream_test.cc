// SPDX-License-Identifier: Apache-2.0
// tls_stream_test.cc: two ends, whose bytes the test carries, cuts, changes and withholds.

#include "security/tls_stream.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "security/tls_context.h"

namespace ciuic::security {
namespace {

const std::string kKey(32, 'k');

std::unique_ptr<TlsStream> end(bool accepts, TlsOptions options = {}) {
  options.accepts = accepts;
  if (options.key.empty()) options.key = kKey;
  return std::move(*TlsStream::create(options));
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Carries at most `limit` bytes, and no more than there is room for. How many went.
size_t carry(TlsStream* from, TlsStream* to, size_t limit = SIZE_MAX) {
  const auto bytes = from->to_send();
  const size_t count = to->take(bytes.first(std::min(limit, bytes.size())));
  from->sent(count);
  return count;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct Ends {
  std::unique_ptr<TlsStream> connector = end(false);
  std::unique_ptr<TlsStream> acceptor = end(true);

  // Both handshakes, `limit` bytes at a time.
  void shake_hands(size_t limit = SIZE_MAX) {
    for (int i = 0; i < 100'000; ++i) {
      const Result<bool> connected = connector->shake_hands();
      carry(connector.get(), acceptor.get(), limit);
      const Result<bool> accepted = acceptor->shake_hands();
      carry(acceptor.get(), connector.get(), limit);
      ASSERT_TRUE(connected.ok()) << connected.status().message();
      ASSERT_TRUE(accepted.ok()) << accepted.status().message();
      if (*connected && *accepted) return;
    }
    FAIL() << "the handshake does not end";
  }
};

// All that read() gives now.
std::string read_all(TlsStream* stream, Status* status = nullptr, size_t at_once = 5000) {
  std::string all;
  std::vector<std::byte> buffer(at_once);
  while (true) {
    const Result<size_t> count = stream->read(buffer);
    if (!count.ok() && status != nullptr) *status = count.status();
    if (!count.ok() || *count == 0) return all;
    all += text_of({buffer.data(), *count});
  }
}

void write(TlsStream* stream, const std::string& text) {
  const Result<bool> done = stream->write(bytes_of(text));
  ASSERT_TRUE(done.ok()) << done.status().message();
  ASSERT_TRUE(*done);
}

std::string random_text(size_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

TEST(TlsStream, CarriesBothWaysAndHidesWhatItCarries) {
  Ends ends;
  ends.shake_hands();
  const std::string ping = "ping: a text that nobody else shall read";
  write(ends.connector.get(), ping);
  const std::string sent = text_of(ends.connector->to_send());
  EXPECT_EQ(sent.find("nobody"), std::string::npos);
  EXPECT_EQ(sent.substr(0, 3), std::string("\x17\x03\x03"));  // application data
  carry(ends.connector.get(), ends.acceptor.get());
  EXPECT_EQ(read_all(ends.acceptor.get()), ping);
  write(ends.acceptor.get(), "pong");
  carry(ends.acceptor.get(), ends.connector.get());
  EXPECT_EQ(read_all(ends.connector.get()), "pong");
}

TEST(TlsStream, GoesOnByteByByte) {
  Ends ends;
  ends.shake_hands(1);
  const std::string text = random_text(3000, 1);
  write(ends.connector.get(), text);
  std::string came;
  while (carry(ends.connector.get(), ends.acceptor.get(), 1) > 0) {
    came += read_all(ends.acceptor.get(), nullptr, 1);
  }
  EXPECT_EQ(came, text);
}

// Records of every size, in pieces of every size, through buffers that are often full.
TEST(TlsStream, LosesNothingInWhateverPieces) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    TlsOptions small;
    small.in_bytes = 1 + random() % 20'000;
    small.out_bytes = kTlsRecordBytes + random() % 60'000;
    small.sleeps = random() % 2 == 0;
    small.records_per_key = 1 + random() % 5;
    Ends ends{end(false, small), end(true, small)};
    ends.shake_hands(1 + random() % 500);
    const std::string text = random_text(400'000, seed);
    std::string came;
    size_t written = 0;
    for (int i = 0; came.size() < text.size(); ++i) {
      ASSERT_LT(i, 5'000'000);
      switch (random() % 3) {
        case 0: {
          const size_t count =
              std::min<size_t>(text.size() - written, 1 + random() % (random() % 2 ? 100 : 16'384));
          const Result<bool> done = ends.connector->write(bytes_of(text.substr(written, count)));
          ASSERT_TRUE(done.ok()) << done.status().message();
          EXPECT_TRUE(*done || !ends.connector->can_write());
          if (*done) written += count;
          break;
        }
        case 1: carry(ends.connector.get(), ends.acceptor.get(), random() % 30'000); break;
        default: {
          std::vector<std::byte> buffer(1 + random() % 20'000);
          const Result<size_t> count = ends.acceptor->read(buffer);
          ASSERT_TRUE(count.ok()) << count.status().message();
          came += text_of({buffer.data(), *count});
        }
      }
    }
    EXPECT_EQ(came, text);
  }
}

TEST(TlsStream, CountsWhatItProduces) {
  Ends ends;
  ends.shake_hands();
  const uint64_t before = ends.connector->produced();
  write(ends.connector.get(), std::string(1000, 'x'));
  EXPECT_EQ(ends.connector->produced() - before, ends.connector->to_send().size());
  carry(ends.connector.get(), ends.acceptor.get());
  EXPECT_EQ(ends.connector->produced() - before, 1022u);  // the record's frame has 22 bytes
}

TEST(TlsStream, TakesNoMoreThanThereIsRoomFor) {
  Ends ends;
  ends.shake_hands();
  const std::string record(kTlsRecordBytes, 'x');
  int written = 0;
  while (*ends.connector->write(bytes_of(record))) ++written;
  EXPECT_GE(written, 1);
  EXPECT_LE(written, 3);
  EXPECT_FALSE(ends.connector->can_write());
  carry(ends.connector.get(), ends.acceptor.get());
  read_all(ends.acceptor.get());
  while (carry(ends.connector.get(), ends.acceptor.get()) > 0) read_all(ends.acceptor.get());
  EXPECT_TRUE(*ends.connector->write(bytes_of(record)));
}

TEST(TlsStream, AnotherKeyIsRefusedOnBothSides) {
  Ends ends;
  TlsOptions other;
  other.key = std::string(32, 'x');
  ends.connector = end(false, other);
  EXPECT_FALSE(*ends.connector->shake_hands());
  carry(ends.connector.get(), ends.acceptor.get());
  const Result<bool> accepted = ends.acceptor->shake_hands();
  EXPECT_EQ(accepted.status().code(), StatusCode::kPermission) << accepted.status().message();
  // It says why before it goes.
  EXPECT_GT(carry(ends.acceptor.get(), ends.connector.get()), 0u);
  const Result<bool> connected = ends.connector->shake_hands();
  EXPECT_EQ(connected.status().code(), StatusCode::kPermission) << connected.status().message();
  // And it is over for good.
  EXPECT_EQ(ends.acceptor->shake_hands().status().code(), StatusCode::kPermission);
}

TEST(TlsStream, APlainPeerIsRefused) {
  for (const std::string& said :
       {std::string("CIUIC hs and so on, in the clear, for a while"), std::string(200, '\0'),
        std::string("GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n"), random_text(500, 7)}) {
    for (const bool accepts : {false, true}) {
      const auto stream = end(accepts);
      ASSERT_TRUE(stream->shake_hands().ok());
      stream->take(bytes_of(said));
      const Result<bool> done = stream->shake_hands();
      EXPECT_EQ(done.status().code(), StatusCode::kPermission);
      EXPECT_NE(done.status().message().find("TLS: the handshake failed: "), std::string::npos)
          << done.status().message();
    }
  }
}

// An end of this process's OpenSSL that would take TLS 1.2, with the same kind of key.
class OlderEnd {
 public:
  explicit OlderEnd(bool accepts) : call_(TlsContext::instance().value()->functions()) {
    context_ = call_.ctx_new(call_.tls_method());
    call_.ctx_ctrl(context_, openssl::kCtrlMaxProtocol, openssl::kTls12, nullptr);
    // The BIO is made by the real context; an Ssl of the older one takes it over.
    method_ = call_.bio_meth_new(call_.bio_get_new_index(), "older");
    call_.bio_meth_set_read_ex(
        method_, [](openssl::Bio* bio, char* out, size_t bytes, size_t* count) {
          const auto& call = TlsContext::instance().value()->functions();
          auto* wire = static_cast<TlsWire*>(call.bio_get_data(bio));
          *count = wire->read(reinterpret_cast<std::byte*>(out), bytes);
          if (*count == 0) call.bio_set_flags(bio, openssl::kBioRead | openssl::kBioShouldRetry);
          return *count > 0 ? 1 : -1;
        });
    call_.bio_meth_set_write_ex(
        method_, [](openssl::Bio* bio, const char* data, size_t bytes, size_t* count) {
          const auto& call = TlsContext::instance().value()->functions();
          auto* wire = static_cast<TlsWire*>(call.bio_get_data(bio));
          *count = wire->write(reinterpret_cast<const std::byte*>(data), bytes);
          return 1;
        });
    call_.bio_meth_set_ctrl(method_, [](openssl::Bio*, int command, long, void*) {
      return command == openssl::kBioCtrlFlush ? 1L : 0L;
    });
    ssl_ = call_.ssl_new(context_);
    openssl::Bio* bio = call_.bio_new(method_);
    call_.bio_set_data(bio, &wire_);
    call_.bio_set_init(bio, 1);
    call_.set_bio(ssl_, bio, bio);
    accepts ? call_.set_accept_state(ssl_) : call_.set_connect_state(ssl_);
  }
  ~OlderEnd() {
    call_.ssl_free(ssl_);
    call_.ctx_free(context_);
    call_.bio_meth_free(method_);
    call_.err_clear_error();
  }

  int shake_hands() { return call_.do_handshake(ssl_); }
  TlsWire& wire() { return wire_; }

 private:
  const openssl::SslFunctions& call_;
  openssl::SslContext* context_ = nullptr;
  openssl::BioMethod* method_ = nullptr;
  openssl::Ssl* ssl_ = nullptr;
  TlsWire wire_{20'000, 40'000};
};

TEST(TlsStream, AnOlderVersionIsRefused) {
  OlderEnd client(false);
  EXPECT_NE(client.shake_hands(), 1);
  const auto acceptor = end(true);
  ASSERT_GT(acceptor->take(client.wire().to_send()), 100u);  // a real hello
  const Result<bool> accepted = acceptor->shake_hands();
  EXPECT_EQ(accepted.status().code(), StatusCode::kPermission);
  EXPECT_NE(accepted.status().message().find("protocol"), std::string::npos)
      << accepted.status().message();

  OlderEnd server(true);
  const auto connector = end(false);
  ASSERT_TRUE(connector->shake_hands().ok());
  const auto room = server.wire().room();
  const auto hello = connector->to_send();
  std::memcpy(room.data(), hello.data(), hello.size());
  server.wire().came(hello.size());
  EXPECT_NE(server.shake_hands(), 1);
  ASSERT_GT(connector->take(server.wire().to_send()), 0u);  // its alert
  EXPECT_EQ(connector->shake_hands().status().code(), StatusCode::kPermission);
}

// As an attacker in between would try it: the hello offers 1.3 and the answer picks 1.2.
TEST(TlsStream, AnAnswerOfAnotherVersionIsRefused) {
  Ends ends;
  ASSERT_TRUE(ends.connector->shake_hands().ok());
  carry(ends.connector.get(), ends.acceptor.get());
  ASSERT_TRUE(ends.acceptor->shake_hands().ok());
  std::string answer = text_of(ends.acceptor->to_send());
  const std::string version_extension("\x00\x2b\x00\x02\x03\x04", 6);
  const size_t at = answer.find(version_extension);
  ASSERT_NE(at, std::string::npos);
  answer[at + 5] = '\x03';
  ends.connector->take(bytes_of(answer));
  EXPECT_EQ(ends.connector->shake_hands().status().code(), StatusCode::kPermission);
}

TEST(TlsStream, EveryFlippedByteIsNoticed) {
  for (size_t byte = 0; byte < 60; ++byte) {
    Ends ends;
    ends.shake_hands();
    write(ends.connector.get(), "a short text");
    std::string record = text_of(ends.connector->to_send());
    if (byte >= record.size()) break;
    record[byte] ^= 1;
    ends.acceptor->take(bytes_of(record));
    ends.acceptor->end_input();  // a flipped length waits for more
    Status status;
    EXPECT_EQ(read_all(ends.acceptor.get(), &status), "");
    EXPECT_EQ(status.code(), StatusCode::kPeerLost) << "byte " << byte;
  }
}

TEST(TlsStream, ARepeatedRecordIsNoticed) {
  Ends ends;
  ends.shake_hands();
  write(ends.connector.get(), "once");
  const std::string record = text_of(ends.connector->to_send());
  ends.acceptor->take(bytes_of(record + record));
  Status status;
  EXPECT_EQ(read_all(ends.acceptor.get(), &status), "once");
  EXPECT_EQ(status.code(), StatusCode::kPeerLost) << status.message();
}

TEST(TlsStream, AnOversizedRecordIsRefused) {
  Ends ends;
  ends.shake_hands();
  std::string record("\x17\x03\x03\xff\xff", 5);  // 64 KiB; 16 KiB and 256 bytes are the limit
  record += std::string(10'000, 'x');
  ends.acceptor->take(bytes_of(record));
  Status status;
  EXPECT_EQ(read_all(ends.acceptor.get(), &status), "");
  EXPECT_EQ(status.code(), StatusCode::kPeerLost) << status.message();
}

TEST(TlsStream, TheEndIsToldAfterAllThatCame) {
  Ends ends;
  ends.shake_hands();
  write(ends.connector.get(), "the last words");
  ends.connector->close();
  ends.connector->close();
  carry(ends.connector.get(), ends.acceptor.get());
  ends.acceptor->end_input();  // the socket's end comes together with it
  Status status;
  EXPECT_EQ(read_all(ends.acceptor.get(), &status), "the last words");
  EXPECT_EQ(status.code(), StatusCode::kClosed) << status.message();
  // The other direction is still open.
  write(ends.acceptor.get(), "an answer");
  carry(ends.acceptor.get(), ends.connector.get());
  EXPECT_EQ(read_all(ends.connector.get()), "an answer");
}

TEST(TlsStream, AnEndThatNobodySaidIsACutConnection) {
  Ends ends;
  ends.shake_hands();
  write(ends.connector.get(), "whole");
  write(ends.connector.get(), "half");
  carry(ends.connector.get(), ends.acceptor.get(), ends.connector->to_send().size() - 1);
  ends.acceptor->end_input();
  Status status;
  EXPECT_EQ(read_all(ends.acceptor.get(), &status), "whole");
  EXPECT_EQ(status.code(), StatusCode::kPeerLost);
  EXPECT_NE(status.message().find("close_notify"), std::string::npos) << status.message();

  const auto connector = end(false);
  ASSERT_TRUE(connector->shake_hands().ok());
  connector->end_input();
  EXPECT_EQ(connector->shake_hands().status().code(), StatusCode::kPeerLost);
}

TEST(TlsStream, AKeyOfAnotherSizeIsRefused) {
  TlsOptions options;
  options.key = "short";
  EXPECT_EQ(TlsStream::create(options).status().code(), StatusCode::kInvalidArgument);
}

TEST(TlsContext, ASettingThatOpensslRefusesIsAnError) {
  openssl::SslFunctions functions = TlsContext::instance().value()->functions();
  functions.ctx_set_ciphersuites = [](openssl::SslContext*, const char*) { return 0; };
  const auto refused = TlsContext::create(functions);
  EXPECT_EQ(refused.status().code(), StatusCode::kSystem);
  EXPECT_NE(refused.status().message().find("TLS_AES_128_GCM_SHA256"), std::string::npos);
  Ends ends;  // the real one still works
  ends.shake_hands();
}

}  // namespace
}  // namespace ciuic::security
