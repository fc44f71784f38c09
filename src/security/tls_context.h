// SPDX-License-Identifier: Apache-2.0
// tls_context.h: OpenSSL, set up once in a process for what TlsStream allows.
//
// TLS 1.3 alone, TLS_AES_128_GCM_SHA256 alone, an external pre-shared key with a Diffie-Hellman
// exchange (psk_dhe_ke) alone: no certificates, no tickets, no resumption, no early data, no
// renegotiation. Set here and not left to the system's openssl.cnf.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "ciuic/status.h"
#include "drivers/openssl/ssl.h"
#include "security/tls_wire.h"

namespace ciuic::security {

inline constexpr size_t kTlsKeyBytes = 32;
using TlsKey = std::array<unsigned char, kTlsKeyBytes>;

class TlsContext {
 public:
  // Made at the first call, and never freed. kUnavailable: no OpenSSL; kSystem: it refused one of
  // the settings. Any thread.
  static Result<const TlsContext*> instance();

  // One of functions that a test has replaced; only one may be in use.
  static Result<std::unique_ptr<TlsContext>> create(const openssl::SslFunctions& functions);

  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  const openssl::SslFunctions& functions() const { return functions_; }

  // A connection whose bytes go through `wire` and whose key is `key`; both outlive it. Null: no
  // memory.
  openssl::Ssl* open(bool accepts, TlsWire* wire, const TlsKey* key) const;

 private:
  explicit TlsContext(const openssl::SslFunctions& functions) : functions_(functions) {}
  Status set_up();

  openssl::SslFunctions functions_;
  openssl::SslContext* context_ = nullptr;
  openssl::BioMethod* method_ = nullptr;
};

}  // namespace ciuic::security
