// SPDX-License-Identifier: Apache-2.0
// hmac_test.cc: RFC 4231's vectors, and what is said where OpenSSL is not there or fails.

#include "drivers/openssl/hmac.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace ciuic::openssl {
namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

TEST(Hmac, Rfc4231) {
  Result<Functions> functions = open_libcrypto();
  ASSERT_TRUE(functions.ok()) << functions.status().message();
  EXPECT_EQ(hex(*hmac_sha256(*functions, std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(*hmac_sha256(*functions, "Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(Hmac, AbsentLibraryNamesThePackage) {
  Result<Functions> functions = open_libcrypto("libciuic_no_such_library.so.3");
  ASSERT_FALSE(functions.ok());
  EXPECT_EQ(functions.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(functions.status().message().find("apt-get install libssl3"), std::string::npos);
}

TEST(Hmac, AnotherLibraryIsRefused) {
  EXPECT_EQ(open_libcrypto("libc.so.6").status().code(), StatusCode::kUnavailable);
}

TEST(Hmac, FailureOfTheLibraryIsAnError) {
  Functions fake;
  fake.sha256 = []() -> const void* { return nullptr; };
  fake.hmac = [](const void*, const void*, int, const unsigned char*, size_t, unsigned char*,
                 unsigned int*) -> unsigned char* { return nullptr; };
  EXPECT_EQ(hmac_sha256(fake, "key", "message").status().code(), StatusCode::kSystem);
}

}  // namespace
}  // namespace ciuic::openssl
