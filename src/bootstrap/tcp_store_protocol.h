// SPDX-License-Identifier: Apache-2.0
// tcp_store_protocol.h: what client and server of the TCP store say to each other.
//
//   request   one byte of Request, the key as a text; then set: the value as a text,
//             get: milliseconds (64 bits), add: the amount (64 bits)
//   answer    one byte of StatusCode, then the value, or the error's message
#pragma once

#include <cstddef>
#include <cstdint>

#include "bootstrap/store_limits.h"
#include "security/handshake.h"

namespace ciuic::bootstrap {

enum class Request : uint8_t { kSet = 1, kGet = 2, kAdd = 3, kErase = 4 };

inline constexpr size_t kMaxStoreFrameBytes = kMaxKeyBytes + kMaxValueBytes + 64;

inline security::Identity store_identity(security::UseTls tls = security::UseTls::kNo) {
  security::Identity identity;
  identity.tls = tls;
  identity.job = "ciuic store";
  identity.purpose = 1;
  return identity;
}

}  // namespace ciuic::bootstrap
