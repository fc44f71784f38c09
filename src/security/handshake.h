// SPDX-License-Identifier: Apache-2.0
// handshake.h: both ends of a new connection prove that they know the job's secret.
//
// A challenge and answer by HMAC-SHA256 in both directions, over everything that was said, before
// any other byte is believed. Both sides send messages of one fixed size, so that a stranger cannot
// make us wait for, or allocate, anything. Pure: bytes in, bytes out; no I/O, no clock. The secret
// is never sent, nothing can be replayed (both sides contribute a nonce), and neither side's answer
// can be reflected (the role is in what is signed).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ciuic/status.h"

namespace ciuic::security {

// 32 random bytes from the kernel.
Result<std::string> make_secret();

// HMAC-SHA256 through OpenSSL's libcrypto.so.3, opened at run time. kUnavailable names the package.
Result<std::string> hmac_sha256(const std::string& key, const std::string& message);

// Whether TLS follows the handshake (tls_stream.h). kAsPeer is for an accepting side that has no
// wish of its own; kCannot is what it says to a peer that wants TLS where there is no OpenSSL for
// it.
enum class UseTls : uint8_t { kNo = 0, kYes = 1, kAsPeer = 2, kCannot = 3 };

// What the two ends tell each other, under the proof. A side that meets a difference in job, epoch,
// group or tls, or a `to` that it is not, refuses.
struct Identity {
  std::string job;  // at most 64 bytes; names the job, not secret
  uint32_t epoch = 0;
  uint32_t group = 0;
  uint32_t purpose = 0;  // what the connection is for; the code that uses it numbers them
  int32_t from = -1;     // rank of the connecting side, or -1: not known yet
  int32_t to = -1;       // rank that it wants
  UseTls tls = UseTls::kNo;
};

class Handshake {
 public:
  // The connecting side says all of `identity`.
  static Handshake connecting(std::string secret, Identity identity);

  // The accepting side knows job, epoch, group and its own rank (`to`); purpose and from come from
  // the peer and are found in peer() after success.
  static Handshake accepting(std::string secret, Identity identity);

  // Bytes to send now, to be cleared by the caller when sent.
  std::string& to_send() { return to_send_; }

  // How many bytes it waits for; 0: it is over, or has failed.
  size_t wanted() const;

  // Takes exactly wanted() bytes. kPermission: another secret; kMismatch: another job, epoch,
  // group, rank or version, both named; kUnavailable: the accepting side has no TLS for a peer that
  // wants it; kInvalidArgument: not our protocol at all. Send what is in
  // to_send() after a failure too: the other side then comes to the same verdict.
  Status receive(const std::string& bytes);

  bool done() const;
  bool accepts() const { return accepts_; }
  const Identity& peer() const { return peer_; }

  // Where it is done: whether TLS follows, and the key for it, which only these two ends have.
  bool uses_tls() const { return identity_.tls == UseTls::kYes; }
  Result<std::string> tls_key() const;

  // Whether the peer has proven itself and was refused because only one of the two wants TLS.
  bool tls_differs() const { return tls_differs_; }

 private:
  enum class Stage : uint8_t;
  Status take_hello(const std::string& bytes);
  Status take_challenge(const std::string& bytes);
  Status take_answer(const std::string& bytes);
  Status compare_with_peer();

  std::string secret_;
  Identity identity_;
  Identity peer_;
  std::string to_send_;
  std::string transcript_;
  Stage stage_{};
  bool accepts_ = false;
  bool tls_differs_ = false;
};

}  // namespace ciuic::security
