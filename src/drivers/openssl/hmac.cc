// SPDX-License-Identifier: Apache-2.0
// hmac.cc: libcrypto by dlopen.

#include "drivers/openssl/hmac.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace ciuic::openssl {

static Status unavailable(const std::string& name, const char* why) {
  return Status(StatusCode::kUnavailable,
                fmt::format("OpenSSL 3 is needed to join more than one process, and {} cannot be "
                            "used: {}. Install libssl3 (Debian 12, Ubuntu 22.04: apt-get install "
                            "libssl3; Fedora, RHEL 9: dnf install openssl-libs)",
                            name, why != nullptr ? why : "unknown error"));
}

Result<Functions> open_libcrypto(const std::string& name) {
  void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return unavailable(name, ::dlerror());
  Functions functions;
  functions.init_crypto =
      reinterpret_cast<decltype(functions.init_crypto)>(::dlsym(library, "OPENSSL_init_crypto"));
  functions.sha256 = reinterpret_cast<decltype(functions.sha256)>(::dlsym(library, "EVP_sha256"));
  functions.hmac = reinterpret_cast<decltype(functions.hmac)>(::dlsym(library, "HMAC"));
  const bool complete =
      functions.init_crypto != nullptr && functions.sha256 != nullptr && functions.hmac != nullptr;
  ::dlclose(library);  // RTLD_NODELETE keeps it mapped
  if (!complete) return unavailable(name, "it has no OPENSSL_init_crypto, EVP_sha256 or HMAC");
  return functions;
}

Result<std::string> hmac_sha256(const Functions& functions, const std::string& key,
                                const std::string& message) {
  std::string mac(kHmacBytes, '\0');
  unsigned int bytes = 0;
  const unsigned char* done =
      functions.hmac(functions.sha256(), key.data(), static_cast<int>(key.size()),
                     reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                     reinterpret_cast<unsigned char*>(mac.data()), &bytes);
  if (done == nullptr || bytes != kHmacBytes) {
    return Status(StatusCode::kSystem, "OpenSSL's HMAC-SHA256 failed (FIPS mode or no memory?)");
  }
  return mac;
}

}  // namespace ciuic::openssl
