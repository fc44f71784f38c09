// SPDX-License-Identifier: Apache-2.0
// handshake_test.cc: honest ends agree; everybody else is refused, and by name.

#include "security/handshake.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ciuic::security {
namespace {

const std::string kSecret(32, 's');
const Identity kConnector{
    .job = "job-a", .epoch = 3, .group = 9, .purpose = 2, .from = 4, .to = 1, .tls = UseTls::kNo};
const Identity kAcceptor{
    .job = "job-a", .epoch = 3, .group = 9, .purpose = 0, .from = -1, .to = 1, .tls = UseTls::kNo};

struct Verdicts {
  Status connecting;
  Status accepting;
  bool both_done = false;
};

std::string take(Handshake* handshake) {
  std::string bytes = std::move(handshake->to_send());
  handshake->to_send().clear();
  return bytes;
}

Verdicts run(Handshake connector, Handshake acceptor) {
  Verdicts verdicts;
  verdicts.accepting = acceptor.receive(take(&connector));
  if (!verdicts.accepting.ok()) return verdicts;
  verdicts.connecting = connector.receive(take(&acceptor));
  verdicts.accepting = acceptor.receive(take(&connector));
  verdicts.both_done = connector.done() && acceptor.done();
  return verdicts;
}

TEST(Handshake, HonestEndsAgree) {
  Handshake connector = Handshake::connecting(kSecret, kConnector);
  Handshake acceptor = Handshake::accepting(kSecret, kAcceptor);
  ASSERT_TRUE(acceptor.receive(take(&connector)).ok());
  ASSERT_TRUE(connector.receive(take(&acceptor)).ok());
  EXPECT_TRUE(connector.done());
  EXPECT_EQ(connector.wanted(), 0u);
  ASSERT_TRUE(acceptor.receive(take(&connector)).ok());
  EXPECT_TRUE(acceptor.done());
  EXPECT_EQ(acceptor.peer().from, 4);
  EXPECT_EQ(acceptor.peer().purpose, 2u);
  EXPECT_EQ(acceptor.peer().job, "job-a");
}

TEST(Handshake, WrongSecretIsRefusedOnBothSides) {
  const Verdicts verdicts = run(Handshake::connecting(std::string(32, 'x'), kConnector),
                                Handshake::accepting(kSecret, kAcceptor));
  EXPECT_EQ(verdicts.connecting.code(), StatusCode::kPermission);
  EXPECT_EQ(verdicts.accepting.code(), StatusCode::kPermission);
  EXPECT_FALSE(verdicts.both_done);
}

TEST(Handshake, ShortSecretIsRefused) {
  const Verdicts verdicts =
      run(Handshake::connecting("", kConnector), Handshake::accepting("", kAcceptor));
  EXPECT_EQ(verdicts.accepting.code(), StatusCode::kPermission);
}

TEST(Handshake, EveryDifferenceIsNamedOnBothSides) {
  struct Case {
    const char* word;
    void (*change)(Identity*);
  };
  const Case cases[] = {{"job job-b", [](Identity* id) { id->job = "job-b"; }},
                        {"epoch 7", [](Identity* id) { id->epoch = 7; }},
                        {"group 8", [](Identity* id) { id->group = 8; }},
                        {"accepting rank 5", [](Identity* id) { id->to = 5; }}};
  for (const Case& c : cases) {
    Identity identity = kConnector;
    c.change(&identity);
    const Verdicts verdicts =
        run(Handshake::connecting(kSecret, identity), Handshake::accepting(kSecret, kAcceptor));
    EXPECT_EQ(verdicts.connecting.code(), StatusCode::kMismatch) << c.word;
    EXPECT_EQ(verdicts.accepting.code(), StatusCode::kMismatch) << c.word;
    EXPECT_NE(verdicts.connecting.message().find(c.word), std::string::npos)
        << verdicts.connecting.message();
  }
}

TEST(Handshake, ReflectedMessagesAreRefused) {
  // A stranger who knows nothing sends our own words back.
  Handshake connector = Handshake::connecting(kSecret, kConnector);
  const std::string hello = take(&connector);
  std::string reflected = hello;
  reflected.resize(connector.wanted(), '\0');
  EXPECT_FALSE(connector.receive(reflected).ok());

  // He lets one accepting end answer the other.
  Handshake first = Handshake::accepting(kSecret, kAcceptor);
  Handshake second = Handshake::accepting(kSecret, kAcceptor);
  ASSERT_TRUE(first.receive(hello).ok());
  ASSERT_TRUE(second.receive(hello).ok());
  const std::string challenge = take(&first);
  const std::string mac = challenge.substr(challenge.size() - second.wanted());
  EXPECT_EQ(second.receive(mac).code(), StatusCode::kPermission);
  EXPECT_EQ(first.receive(mac).code(), StatusCode::kPermission);
}

TEST(Handshake, ReplayIsRefused) {
  Handshake connector = Handshake::connecting(kSecret, kConnector);
  Handshake acceptor = Handshake::accepting(kSecret, kAcceptor);
  const std::string hello = take(&connector);
  ASSERT_TRUE(acceptor.receive(hello).ok());
  const std::string challenge = take(&acceptor);
  ASSERT_TRUE(connector.receive(challenge).ok());
  const std::string answer = take(&connector);
  ASSERT_TRUE(acceptor.receive(answer).ok());

  Handshake again = Handshake::accepting(kSecret, kAcceptor);
  ASSERT_TRUE(again.receive(hello).ok());
  EXPECT_EQ(again.receive(answer).code(), StatusCode::kPermission);
  Handshake later = Handshake::connecting(kSecret, kConnector);
  EXPECT_EQ(later.receive(challenge).code(), StatusCode::kPermission);
}

// Flips one bit of one byte of one of the three messages.
bool survives_flip(int message, size_t byte) {
  Handshake connector = Handshake::connecting(kSecret, kConnector);
  Handshake acceptor = Handshake::accepting(kSecret, kAcceptor);
  const auto pass = [&](int number, Handshake* from) {
    std::string bytes = take(from);
    if (number == message && byte < bytes.size()) bytes[byte] ^= 1;
    return bytes;
  };
  if (!acceptor.receive(pass(0, &connector)).ok()) return false;
  if (!connector.receive(pass(1, &acceptor)).ok()) return false;
  return acceptor.receive(pass(2, &connector)).ok();
}

TEST(Handshake, EveryFlippedByteIsRefused) {
  size_t sizes[3] = {};
  {
    Handshake connector = Handshake::connecting(kSecret, kConnector);
    Handshake acceptor = Handshake::accepting(kSecret, kAcceptor);
    sizes[0] = connector.to_send().size();
    sizes[1] = connector.wanted();
    ASSERT_TRUE(acceptor.receive(take(&connector)).ok());
    sizes[2] = acceptor.wanted();
  }
  for (int message = 0; message < 3; ++message) {
    for (size_t byte = 0; byte < sizes[message]; ++byte) {
      EXPECT_FALSE(survives_flip(message, byte)) << "message " << message << ", byte " << byte;
    }
  }
  EXPECT_TRUE(survives_flip(3, 0));  // nothing flipped: the test can tell
}

TEST(Handshake, TruncatedAndGarbageAreRefused) {
  Handshake acceptor = Handshake::accepting(kSecret, kAcceptor);
  Handshake connector = Handshake::connecting(kSecret, kConnector);
  std::string hello = take(&connector);
  EXPECT_EQ(acceptor.receive(hello.substr(1)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(acceptor.wanted(), 0u);
  EXPECT_FALSE(acceptor.done());

  Handshake other = Handshake::accepting(kSecret, kAcceptor);
  EXPECT_EQ(other.receive(std::string(other.wanted(), 'G')).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(other.receive("").ok());

  Handshake newer = Handshake::accepting(kSecret, kAcceptor);
  hello[8] = 3;
  EXPECT_EQ(newer.receive(hello).code(), StatusCode::kMismatch);
}

Identity with_tls(Identity identity, UseTls tls) {
  identity.tls = tls;
  return identity;
}

TEST(Handshake, GivesBothEndsOneKeyForTlsAndEachConnectionAnother) {
  std::vector<std::string> keys;
  for (int connection = 0; connection < 2; ++connection) {
    Handshake connector = Handshake::connecting(kSecret, with_tls(kConnector, UseTls::kYes));
    Handshake acceptor = Handshake::accepting(kSecret, with_tls(kAcceptor, UseTls::kYes));
    EXPECT_FALSE(connector.tls_key().ok());
    ASSERT_TRUE(acceptor.receive(take(&connector)).ok());
    ASSERT_TRUE(connector.receive(take(&acceptor)).ok());
    ASSERT_TRUE(acceptor.receive(take(&connector)).ok());
    EXPECT_TRUE(connector.uses_tls());
    EXPECT_TRUE(acceptor.uses_tls());
    EXPECT_EQ(acceptor.peer().tls, UseTls::kYes);
    EXPECT_EQ(*connector.tls_key(), *acceptor.tls_key());
    EXPECT_EQ(connector.tls_key()->size(), 32u);
    keys.push_back(*connector.tls_key());
  }
  EXPECT_NE(keys[0], keys[1]);
}

TEST(Handshake, OneThatWantsTlsAndOneThatDoesNotAreToldSo) {
  for (const UseTls connects : {UseTls::kNo, UseTls::kYes}) {
    const UseTls accepts = connects == UseTls::kYes ? UseTls::kNo : UseTls::kYes;
    Handshake connector = Handshake::connecting(kSecret, with_tls(kConnector, connects));
    Handshake acceptor = Handshake::accepting(kSecret, with_tls(kAcceptor, accepts));
    ASSERT_TRUE(acceptor.receive(take(&connector)).ok());
    EXPECT_FALSE(acceptor.tls_differs());  // nothing is proven yet
    const Status at_connector = connector.receive(take(&acceptor));
    const Status at_acceptor = acceptor.receive(take(&connector));
    for (const Status& status : {at_connector, at_acceptor}) {
      EXPECT_EQ(status.code(), StatusCode::kMismatch);
      EXPECT_NE(status.message().find("CIUIC_TLS"), std::string::npos) << status.message();
    }
    EXPECT_TRUE(connector.tls_differs());
    EXPECT_TRUE(acceptor.tls_differs());
    EXPECT_EQ(acceptor.peer().from, 4);
  }
}

TEST(Handshake, WhoHasNoWishDoesAsThePeer) {
  for (const UseTls tls : {UseTls::kNo, UseTls::kYes}) {
    Handshake connector = Handshake::connecting(kSecret, with_tls(kConnector, tls));
    Handshake acceptor = Handshake::accepting(kSecret, with_tls(kAcceptor, UseTls::kAsPeer));
    ASSERT_TRUE(acceptor.receive(take(&connector)).ok());
    ASSERT_TRUE(connector.receive(take(&acceptor)).ok());
    ASSERT_TRUE(acceptor.receive(take(&connector)).ok());
    EXPECT_EQ(connector.uses_tls(), tls == UseTls::kYes);
    EXPECT_EQ(acceptor.uses_tls(), tls == UseTls::kYes);
    EXPECT_EQ(*connector.tls_key(), *acceptor.tls_key());
  }
}

TEST(Handshake, WhoCannotSaysSo) {
  Handshake connector = Handshake::connecting(kSecret, with_tls(kConnector, UseTls::kYes));
  Handshake acceptor = Handshake::accepting(kSecret, with_tls(kAcceptor, UseTls::kCannot));
  ASSERT_TRUE(acceptor.receive(take(&connector)).ok());
  const Status at_connector = connector.receive(take(&acceptor));
  EXPECT_EQ(at_connector.code(), StatusCode::kUnavailable);
  for (const char* word : {"CIUIC_TLS=1 here", "libssl.so.3", "apt-get install libssl3"}) {
    EXPECT_NE(at_connector.message().find(word), std::string::npos) << at_connector.message();
  }
  EXPECT_FALSE(connector.done());
  // A connecting side has either wish; this one would be a forgery.
  Handshake odd = Handshake::connecting(kSecret, with_tls(kConnector, UseTls::kCannot));
  Handshake other = Handshake::accepting(kSecret, kAcceptor);
  EXPECT_EQ(other.receive(take(&odd)).code(), StatusCode::kInvalidArgument);
}

// Jobs are named by stores and peers, which may be anybody's.
TEST(Handshake, NamesOfJobsReachMessagesAsOneLineOfText) {
  for (const std::string& secret : {kSecret, std::string(32, 'x')}) {
    Identity mine = kConnector;
    mine.job = "one\nline \x1b[2J";
    Identity other = kAcceptor;
    other.job = "caf\xc3\xa9 \xff\x07";
    const Verdicts verdicts =
        run(Handshake::connecting(kSecret, mine), Handshake::accepting(secret, other));
    for (const Status& status : {verdicts.connecting, verdicts.accepting}) {
      EXPECT_NE(status.message().find("one line ?[2J"), std::string::npos) << status.message();
      EXPECT_NE(status.message().find("caf\xc3\xa9 ??"), std::string::npos) << status.message();
      EXPECT_EQ(status.message().find_first_of("\n\x1b\x07\xff"), std::string::npos);
    }
  }
}

TEST(Secret, IsRandom) {
  Result<std::string> a = make_secret();
  Result<std::string> b = make_secret();
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->size(), 32u);
  EXPECT_NE(*a, *b);
}

}  // namespace
}  // namespace ciuic::security
