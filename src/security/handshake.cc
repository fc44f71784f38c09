// SPDX-License-Identifier: Apache-2.0
// handshake.cc: hello, challenge, answer.
//
//   connecting -> accepting   hello      who it is, whom it wants, 32 random bytes
//   accepting -> connecting   challenge  who it is, 32 random bytes; HMAC over hello and challenge
//   connecting -> accepting   answer     HMAC over hello, challenge and the first HMAC
//
// Each HMAC begins with the name of the role that made it. Both sides compare the same two
// identities, and only after the other has proved the secret: so both come to the same verdict, and
// a stranger learns no more than that somebody listens. The key for TLS is one more HMAC, over all
// three messages. The hello has the same size in every
// version, so that two versions can tell each other apart.

#include "security/handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/printable.h"
#include "drivers/openssl/hmac.h"
#include "drivers/posix/process.h"
#include "security/in_openssl.h"
#include "security/tls_context.h"

namespace ciuic::security {

static constexpr char kMagic[] = {'C', 'I', 'U', 'I', 'C', ' ', 'h', 's'};
static constexpr uint8_t kHandshakeVersion = 2;
static constexpr uint8_t kConnecting = 1;
static constexpr uint8_t kAccepting = 2;
static constexpr size_t kSecretBytes = 32;
static constexpr size_t kLeastSecretBytes = 16;
static constexpr size_t kNonceBytes = 32;
static constexpr size_t kMacBytes = openssl::kHmacBytes;
static constexpr size_t kJobBytes = 64;
// Magic, version, role, length of the job's name, whether TLS follows; job; five numbers; nonce.
static constexpr size_t kHelloBytes = 12 + kJobBytes + 5 * 4 + kNonceBytes;

enum class Handshake::Stage : uint8_t {
  kFailed = 0,
  kAwaitHello,
  kAwaitChallenge,
  kAwaitAnswer,
  kDone,
};

Result<std::string> make_secret() { return posix::random_bytes(kSecretBytes); }

static Result<openssl::Functions> start_libcrypto() {
  Result<openssl::Functions> functions = openssl::open_libcrypto();
  if (!functions.ok()) return functions;
  functions->init_crypto(openssl::kInitAddAllDigests, nullptr);
  InOpenssl::guard_exit();
  return functions;
}

Result<std::string> hmac_sha256(const std::string& key, const std::string& message) {
  // The library's functions, looked up once in a process; nothing of them changes. Never destroyed:
  // a thread may be here while the process leaves.
  static const auto& functions = *new Result<openssl::Functions>(start_libcrypto());
  if (!functions.ok()) return functions.status();
  const InOpenssl inside;
  if (!inside.allowed()) return process_exits();
  return openssl::hmac_sha256(*functions, key, message);
}

// Takes the same time wherever the first difference is.
static bool same_mac(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = difference | (a[i] ^ b[i]);
  return difference == 0;
}

static void append_number(uint32_t number, std::string* out) {
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(number >> shift));
}

static uint32_t number_at(const std::string& bytes, size_t offset) {
  uint32_t number = 0;
  for (int i = 3; i >= 0; --i) {
    number = number << 8 | static_cast<unsigned char>(bytes[offset + static_cast<size_t>(i)]);
  }
  return number;
}

static std::string encode_hello(uint8_t role, const Identity& identity, const std::string& nonce) {
  std::string out(kMagic, sizeof kMagic);
  const std::string job = identity.job.substr(0, kJobBytes);
  out.push_back(static_cast<char>(kHandshakeVersion));
  out.push_back(static_cast<char>(role));
  out.push_back(static_cast<char>(job.size()));
  out.push_back(static_cast<char>(identity.tls));
  out += job;
  out.resize(12 + kJobBytes, '\0');
  append_number(identity.epoch, &out);
  append_number(identity.group, &out);
  append_number(identity.purpose, &out);
  append_number(static_cast<uint32_t>(identity.from), &out);
  append_number(static_cast<uint32_t>(identity.to), &out);
  return out + nonce;
}

static Result<Identity> decode_hello(uint8_t role, const std::string& bytes) {
  if (std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) {
    return Status(StatusCode::kInvalidArgument, "the peer does not speak Ciuic's handshake");
  }
  const auto version = static_cast<uint8_t>(bytes[8]);
  if (version != kHandshakeVersion) {
    return Status(StatusCode::kMismatch, fmt::format("handshake version {} here, {} at the peer",
                                                     kHandshakeVersion, version));
  }
  const auto job_bytes = static_cast<uint8_t>(bytes[10]);
  const auto tls = static_cast<uint8_t>(bytes[11]);
  const bool cannot = role == kAccepting && tls == static_cast<uint8_t>(UseTls::kCannot);
  if (static_cast<uint8_t>(bytes[9]) != role || job_bytes > kJobBytes || (tls > 1 && !cannot)) {
    return Status(StatusCode::kInvalidArgument, "the peer's hello is malformed");
  }
  Identity identity;
  identity.job = bytes.substr(12, job_bytes);
  identity.epoch = number_at(bytes, 12 + kJobBytes);
  identity.group = number_at(bytes, 12 + kJobBytes + 4);
  identity.purpose = number_at(bytes, 12 + kJobBytes + 8);
  identity.from = static_cast<int32_t>(number_at(bytes, 12 + kJobBytes + 12));
  identity.to = static_cast<int32_t>(number_at(bytes, 12 + kJobBytes + 16));
  identity.tls = static_cast<UseTls>(tls);
  return identity;
}

static Status differs(const char* what, const std::string& here, const std::string& there) {
  return Status(StatusCode::kMismatch,
                fmt::format("{} {} here, {} at the peer", what, here, there));
}

// `here` and `there` are what the two ends said; `to` is what the connecting side wants, and what
// the accepting side is.
static Status compare(const Identity& here, const Identity& there) {
  if (here.job != there.job) return differs("job", printable(here.job), printable(there.job));
  if (here.epoch != there.epoch) {
    return differs("epoch", std::to_string(here.epoch), std::to_string(there.epoch));
  }
  if (here.group != there.group) {
    return differs("group", std::to_string(here.group), std::to_string(there.group));
  }
  if (here.to != there.to) {
    return differs("accepting rank", std::to_string(here.to), std::to_string(there.to));
  }
  return {};
}

// The job's settings differ, which is no attack, and is said as a user can mend it.
static Status mixed_tls(UseTls here, UseTls there) {
  if (here == UseTls::kCannot) return TlsContext::instance().status();
  if (there == UseTls::kCannot) {
    return Status(StatusCode::kUnavailable,
                  "CIUIC_TLS=1 here, and the peer cannot: where it runs there is no OpenSSL 3 with "
                  "libssl.so.3. Install libssl3 there (Debian 12, Ubuntu 22.04: apt-get install "
                  "libssl3), or unset CIUIC_TLS on all ranks");
  }
  return Status(StatusCode::kMismatch,
                fmt::format("CIUIC_TLS={} here, {} at the peer; set it alike on all ranks",
                            static_cast<int>(here), static_cast<int>(there)));
}

static Status wrong_secret(const Identity& here, const Identity& there) {
  return Status(StatusCode::kPermission,
                fmt::format("the peer does not know the secret of job {} (it says that it is of "
                            "job {}, epoch {})",
                            printable(here.job), printable(there.job), there.epoch));
}

Handshake Handshake::connecting(std::string secret, Identity identity) {
  Handshake handshake;
  handshake.secret_ = std::move(secret);
  handshake.identity_ = std::move(identity);
  Result<std::string> nonce = posix::random_bytes(kNonceBytes);
  if (!nonce.ok()) return handshake;  // has failed: wanted() is 0, and done() false
  handshake.to_send_ = encode_hello(kConnecting, handshake.identity_, *nonce);
  handshake.transcript_ = handshake.to_send_;
  handshake.stage_ = Stage::kAwaitChallenge;
  return handshake;
}

Handshake Handshake::accepting(std::string secret, Identity identity) {
  Handshake handshake;
  handshake.secret_ = std::move(secret);
  handshake.identity_ = std::move(identity);
  handshake.accepts_ = true;
  handshake.stage_ = Stage::kAwaitHello;
  return handshake;
}

size_t Handshake::wanted() const {
  switch (stage_) {
    case Stage::kAwaitHello: return kHelloBytes;
    case Stage::kAwaitChallenge: return kHelloBytes + kMacBytes;
    case Stage::kAwaitAnswer: return kMacBytes;
    case Stage::kFailed:
    case Stage::kDone: break;
  }
  return 0;
}

bool Handshake::done() const { return stage_ == Stage::kDone; }

Status Handshake::receive(const std::string& bytes) {
  const Stage stage = stage_;
  const bool exact = bytes.size() == wanted() && !bytes.empty();
  stage_ = Stage::kFailed;  // whatever goes wrong below, it is over
  if (!exact) return Status(StatusCode::kInvalidArgument, "handshake message of another size");
  if (secret_.size() < kLeastSecretBytes) {
    return Status(StatusCode::kPermission, "the job's secret has fewer than 16 bytes");
  }
  switch (stage) {
    case Stage::kAwaitHello: return take_hello(bytes);
    case Stage::kAwaitChallenge: return take_challenge(bytes);
    default: return take_answer(bytes);
  }
}

Status Handshake::compare_with_peer() {
  CIUIC_RETURN_IF_ERROR(compare(identity_, peer_));
  tls_differs_ = identity_.tls != peer_.tls;
  return tls_differs_ ? mixed_tls(identity_.tls, peer_.tls) : Status();
}

Result<std::string> Handshake::tls_key() const {
  if (!done()) return Status(StatusCode::kPermission, "the handshake is not over");
  return hmac_sha256(secret_, "TLS key" + transcript_);
}

Status Handshake::take_hello(const std::string& bytes) {
  Result<Identity> peer = decode_hello(kConnecting, bytes);
  if (!peer.ok()) return peer.status();
  peer_ = std::move(*peer);
  Result<std::string> nonce = posix::random_bytes(kNonceBytes);
  if (!nonce.ok()) return nonce.status();
  if (identity_.tls == UseTls::kAsPeer) {
    const bool cannot = peer_.tls == UseTls::kYes && !TlsContext::instance().ok();
    identity_.tls = cannot ? UseTls::kCannot : peer_.tls;
  }
  Identity self = identity_;
  self.purpose = peer_.purpose;
  self.from = peer_.from;
  const std::string challenge = encode_hello(kAccepting, self, *nonce);
  transcript_ = bytes + challenge;
  Result<std::string> mac = hmac_sha256(secret_, "accepting" + transcript_);
  if (!mac.ok()) return mac.status();
  transcript_ += *mac;
  to_send_ = challenge + *mac;
  stage_ = Stage::kAwaitAnswer;
  return {};
}

Status Handshake::take_challenge(const std::string& bytes) {
  const std::string challenge = bytes.substr(0, kHelloBytes);
  Result<Identity> peer = decode_hello(kAccepting, challenge);
  if (!peer.ok()) return peer.status();
  peer_ = std::move(*peer);
  transcript_ += challenge;
  const std::string theirs = bytes.substr(kHelloBytes);
  Result<std::string> expected = hmac_sha256(secret_, "accepting" + transcript_);
  if (!expected.ok()) return expected.status();
  transcript_ += theirs;
  // The answer goes in every case: the accepting side shall come to the same verdict as this one.
  Result<std::string> answer = hmac_sha256(secret_, "connecting" + transcript_);
  if (!answer.ok()) return answer.status();
  to_send_ = *answer;
  transcript_ += *answer;
  if (!same_mac(*expected, theirs)) return wrong_secret(identity_, peer_);
  CIUIC_RETURN_IF_ERROR(compare_with_peer());
  stage_ = Stage::kDone;
  return {};
}

Status Handshake::take_answer(const std::string& bytes) {
  Result<std::string> expected = hmac_sha256(secret_, "connecting" + transcript_);
  if (!expected.ok()) return expected.status();
  if (!same_mac(*expected, bytes)) return wrong_secret(identity_, peer_);
  transcript_ += bytes;
  CIUIC_RETURN_IF_ERROR(compare_with_peer());
  stage_ = Stage::kDone;
  return {};
}

}  // namespace ciuic::security
