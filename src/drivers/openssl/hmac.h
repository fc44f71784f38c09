// SPDX-License-Identifier: Apache-2.0
// hmac.h: HMAC-SHA256 by OpenSSL's libcrypto, opened at run time: no part of the library links it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ciuic/status.h"

namespace ciuic::openssl {

inline constexpr size_t kHmacBytes = 32;
inline constexpr uint64_t kInitAddAllDigests = 8;  // with no option at all nothing is started

// The functions of libcrypto that are used. A test may stand in for any of them.
struct Functions {
  // OPENSSL_init_crypto(): starts the library, which then registers its exit handler.
  int (*init_crypto)(uint64_t options, const void* settings) = nullptr;
  const void* (*sha256)() = nullptr;
  // HMAC(): one call over the EVP digest; null on failure.
  unsigned char* (*hmac)(const void* digest, const void* key, int key_bytes,
                         const unsigned char* data, size_t data_bytes, unsigned char* out,
                         unsigned int* out_bytes) = nullptr;
};

// Opens the library under one of `names` and takes its functions; stays open for the life of the
// process, since OpenSSL registers exit handlers. kUnavailable says what to install.
Result<Functions> open_libcrypto(const std::string& name = "libcrypto.so.3");

// kHmacBytes bytes. Any thread.
Result<std::string> hmac_sha256(const Functions& functions, const std::string& key,
                                const std::string& message);

}  // namespace ciuic::openssl
