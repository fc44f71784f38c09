// SPDX-License-Identifier: Apache-2.0
// tls_stream.h: TLS 1.3 between two processes that share a key. Bytes in, bytes out; no I/O.
//
// What proves what, on a connection with CIUIC_TLS=1:
//
//   1  Handshake (handshake.h), in the clear: both ends know the job's secret, now, and agree on
//      job, epoch, group, ranks, and that TLS follows. Nothing else is believed before.
//   2  The key is Handshake::tls_key(): a MAC by the secret over all of 1, so it is of this one
//      connection, and nobody who only reads along, or changed a byte of 1, has it.
//   3  TLS with that key as external PSK and a fresh Diffie-Hellman exchange (psk_dhe_ke): all that
//      follows is secret, whole and in order, and comes from whoever proved himself in 1. Who
//      learns the secret later still cannot read it.
//
// So no byte reaches OpenSSL from somebody who did not know the secret, unless he changes what
// others send; and where an end wants no TLS, step 1 says so under the proof, on both sides.
//
// An end without close_notify is an error: somebody, or a death, cut it off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ciuic/status.h"

namespace ciuic::security {

struct TlsOptions {
  bool accepts = false;          // the accepting end
  std::string key;               // 32 bytes
  size_t in_bytes = 20 * 1024;   // of encrypted bytes that wait for read()
  size_t out_bytes = 36 * 1024;  // of encrypted bytes that wait to be sent
  bool sleeps = false;           // gives OpenSSL's buffers back between records
  // After so many records the key changes: AES-GCM's are good for 2^24.5 of full size.
  uint64_t records_per_key = uint64_t{1} << 22;
};

class TlsStream {
 public:
  // kUnavailable: no OpenSSL, the package is named.
  static Result<std::unique_ptr<TlsStream>> create(const TlsOptions& options);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // ---- the encrypted side ----

  // Where bytes from the peer go, and that so many went there. Full: read() first.
  std::span<std::byte> room();
  void came(size_t bytes);

  // The same for bytes that lie elsewhere: how many it took.
  size_t take(std::span<const std::byte> bytes);

  // The peer will send no more.
  void end_input();

  // What is to be sent, and that so many bytes of it went.
  std::span<const std::byte> to_send() const;
  void sent(size_t bytes);

  // All bytes that were ever to be sent.
  uint64_t produced() const;

  // ---- the plain side ----

  // Goes on with the handshake. True: over, on this side. kPermission: the other end has another
  // key, another version, or is no TLS; what is in to_send() then tells it why.
  Result<bool> shake_hands();

  // How many bytes; 0: first more must come(), or what is to_send() go. kClosed: the peer closed.
  // kPeerLost: cut off, or bytes that were not from the peer. Only after the handshake.
  Result<size_t> read(std::span<std::byte> out);

  // Whether the last read() waited for room for what is to be sent, and not for bytes to come.
  bool wants_to_send() const;

  // Encrypts all of at most kTlsRecordBytes. False: first, what is to_send() must go.
  Result<bool> write(std::span<const std::byte> data);

  // Whether write() would take something.
  bool can_write() const;

  // Says that no more will be written. Nothing must be after this.
  void close();

  size_t buffer_bytes() const;

 private:
  struct State;
  explicit TlsStream(std::unique_ptr<State> state);
  Status verdict(int returned, const char* doing);

  std::unique_ptr<State> state_;
};

// What goes into one record.
inline constexpr size_t kTlsRecordBytes = 16 * 1024;

}  // namespace ciuic::security
