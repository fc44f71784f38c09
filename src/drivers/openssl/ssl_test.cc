// SPDX-License-Identifier: Apache-2.0
// ssl_test.cc: the functions are all there, and what is said where OpenSSL is not.

#include "drivers/openssl/ssl.h"

#include <gtest/gtest.h>

namespace ciuic::openssl {
namespace {

TEST(Ssl, EveryFunctionIsThere) {
  Result<SslFunctions> functions = open_libssl();
  ASSERT_TRUE(functions.ok()) << functions.status().message();
  EXPECT_EQ(functions->init_ssl(0, nullptr), 1);
  SslContext* context = functions->ctx_new(functions->tls_method());
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(functions->ctx_ctrl(context, kCtrlMinProtocol, kTls13, nullptr), 1);
  functions->ctx_free(context);
}

TEST(Ssl, AbsentLibraryNamesThePackageAndTheSetting) {
  Result<SslFunctions> functions = open_libssl("libciuic_no_such_library.so.3");
  ASSERT_FALSE(functions.ok());
  EXPECT_EQ(functions.status().code(), StatusCode::kUnavailable);
  for (const char* word : {"apt-get install libssl3", "CIUIC_TLS", "libciuic_no_such_library"}) {
    EXPECT_NE(functions.status().message().find(word), std::string::npos) << word;
  }
}

TEST(Ssl, AnotherLibraryIsRefused) {
  Result<SslFunctions> functions = open_libssl("libc.so.6");
  EXPECT_EQ(functions.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(functions.status().message().find("OPENSSL_init_ssl"), std::string::npos);
}

}  // namespace
}  // namespace ciuic::openssl
