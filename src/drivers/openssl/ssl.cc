// SPDX-License-Identifier: Apache-2.0
// ssl.cc: libssl by dlopen. What is looked up in it is found in its libcrypto, too.

#include "drivers/openssl/ssl.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace ciuic::openssl {

static Status unavailable(const std::string& name, const std::string& why) {
  return Status(StatusCode::kUnavailable,
                fmt::format("CIUIC_TLS=1 needs OpenSSL 3's TLS library, and {} cannot be used: {}. "
                            "Install libssl3 (Debian 12, Ubuntu 22.04: apt-get install libssl3; "
                            "Fedora, RHEL 9: dnf install openssl-libs), or unset CIUIC_TLS on all "
                            "ranks",
                            name, why));
}

namespace {

// Looks functions up one by one, and keeps the name of the first that is not there.
class Lookup {
 public:
  explicit Lookup(void* library) : library_(library) {}

  template <typename Function>
  void operator()(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(::dlsym(library_, name));
    if (*function == nullptr && missing_.empty()) missing_ = name;
  }

  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

}  // namespace

static void look_up_context(Lookup& take, SslFunctions* out) {
  take("OPENSSL_init_ssl", &out->init_ssl);
  take("TLS_method", &out->tls_method);
  take("SSL_CTX_new", &out->ctx_new);
  take("SSL_CTX_free", &out->ctx_free);
  take("SSL_CTX_ctrl", &out->ctx_ctrl);
  take("SSL_CTX_set_options", &out->ctx_set_options);
  take("SSL_CTX_clear_options", &out->ctx_clear_options);
  take("SSL_CTX_set_ciphersuites", &out->ctx_set_ciphersuites);
  take("SSL_CTX_set_num_tickets", &out->ctx_set_num_tickets);
  take("SSL_CTX_set_psk_use_session_callback", &out->ctx_set_psk_use_session_callback);
  take("SSL_CTX_set_psk_find_session_callback", &out->ctx_set_psk_find_session_callback);
}

static void look_up_connection(Lookup& take, SslFunctions* out) {
  take("SSL_new", &out->ssl_new);
  take("SSL_free", &out->ssl_free);
  take("SSL_ctrl", &out->ssl_ctrl);
  take("SSL_set_bio", &out->set_bio);
  take("SSL_set_ex_data", &out->set_ex_data);
  take("SSL_get_ex_data", &out->get_ex_data);
  take("SSL_set_verify", &out->set_verify);
  take("SSL_set_connect_state", &out->set_connect_state);
  take("SSL_set_accept_state", &out->set_accept_state);
  take("SSL_do_handshake", &out->do_handshake);
  take("SSL_read_ex", &out->read_ex);
  take("SSL_write_ex", &out->write_ex);
  take("SSL_shutdown", &out->shutdown);
  take("SSL_get_error", &out->get_error);
  take("SSL_pending", &out->pending);
  take("SSL_version", &out->version);
  take("SSL_session_reused", &out->session_reused);
  take("SSL_key_update", &out->key_update);
  take("SSL_SESSION_new", &out->session_new);
  take("SSL_SESSION_free", &out->session_free);
  take("SSL_SESSION_set1_master_key", &out->session_set1_master_key);
  take("SSL_SESSION_set_cipher", &out->session_set_cipher);
  take("SSL_SESSION_set_protocol_version", &out->session_set_protocol_version);
  take("SSL_CIPHER_find", &out->cipher_find);
}

static void look_up_crypto(Lookup& take, SslFunctions* out) {
  take("BIO_get_new_index", &out->bio_get_new_index);
  take("BIO_meth_new", &out->bio_meth_new);
  take("BIO_meth_free", &out->bio_meth_free);
  take("BIO_meth_set_read_ex", &out->bio_meth_set_read_ex);
  take("BIO_meth_set_write_ex", &out->bio_meth_set_write_ex);
  take("BIO_meth_set_ctrl", &out->bio_meth_set_ctrl);
  take("BIO_new", &out->bio_new);
  take("BIO_set_init", &out->bio_set_init);
  take("BIO_set_data", &out->bio_set_data);
  take("BIO_get_data", &out->bio_get_data);
  take("BIO_set_flags", &out->bio_set_flags);
  take("BIO_clear_flags", &out->bio_clear_flags);
  take("ERR_get_error", &out->err_get_error);
  take("ERR_clear_error", &out->err_clear_error);
  take("ERR_reason_error_string", &out->err_reason_error_string);
}

Result<SslFunctions> open_libssl(const std::string& name) {
  void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return unavailable(name, why != nullptr ? why : "unknown error");
  }
  SslFunctions functions;
  Lookup take(library);
  look_up_context(take, &functions);
  look_up_connection(take, &functions);
  look_up_crypto(take, &functions);
  ::dlclose(library);  // RTLD_NODELETE keeps it mapped
  if (!take.missing().empty()) return unavailable(name, "it has no " + take.missing());
  return functions;
}

}  // namespace ciuic::openssl
