// SPDX-License-Identifier: Apache-2.0
// tls_context.cc: settings, the callbacks that hand over the key, and the BIO.

#include "security/tls_context.h"

#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "security/in_openssl.h"

namespace ciuic::security {

using openssl::Bio;
using openssl::Ssl;
using openssl::SslFunctions;
using openssl::SslSession;

static constexpr char kCipherSuite[] = "TLS_AES_128_GCM_SHA256";
static constexpr unsigned char kCipherCode[] = {0x13, 0x01};
// One key a connection, so the name says nothing.
static constexpr unsigned char kPskIdentity[] = {'c', 'i', 'u', 'i', 'c'};

// The callbacks get an Ssl alone, and there is one OpenSSL in a process but for tests with fakes.
static std::atomic<const SslFunctions*> callback_functions{nullptr};

// ---- the key ----

// Where SSL_get_ex_data() finds the connection's TlsKey; 0 is free for applications.
static constexpr int kKeyIndex = 0;

static SslSession* session_of(Ssl* ssl) {
  const SslFunctions& call = *callback_functions.load();
  const auto* key = static_cast<const TlsKey*>(call.get_ex_data(ssl, kKeyIndex));
  SslSession* session = key == nullptr ? nullptr : call.session_new();
  if (session == nullptr) return nullptr;
  const auto* cipher = call.cipher_find(ssl, kCipherCode);
  if (cipher != nullptr && call.session_set1_master_key(session, key->data(), key->size()) == 1 &&
      call.session_set_cipher(session, cipher) == 1 &&
      call.session_set_protocol_version(session, static_cast<int>(openssl::kTls13)) == 1) {
    return session;
  }
  call.session_free(session);
  return nullptr;
}

// 1: goes on, without the key where *session is null; 0: the handshake fails.
static int use_psk(Ssl* ssl, const void* /*digest*/, const unsigned char** identity,
                   size_t* identity_bytes, SslSession** session) {
  *identity = kPskIdentity;
  *identity_bytes = sizeof kPskIdentity;
  *session = session_of(ssl);
  return *session != nullptr ? 1 : 0;
}

static int find_psk(Ssl* ssl, const unsigned char* identity, size_t identity_bytes,
                    SslSession** session) {
  const bool ours = identity_bytes == sizeof kPskIdentity &&
                    std::memcmp(identity, kPskIdentity, sizeof kPskIdentity) == 0;
  *session = ours ? session_of(ssl) : nullptr;
  return 1;
}

// ---- the BIO ----

static int bio_read(Bio* bio, char* out, size_t bytes, size_t* count) {
  const SslFunctions& call = *callback_functions.load();
  call.bio_clear_flags(bio, openssl::kBioRead | openssl::kBioWrite | openssl::kBioShouldRetry);
  auto* wire = static_cast<TlsWire*>(call.bio_get_data(bio));
  *count = wire->read(reinterpret_cast<std::byte*>(out), bytes);
  if (*count > 0) return 1;
  if (wire->input_ended()) return 0;
  call.bio_set_flags(bio, openssl::kBioRead | openssl::kBioShouldRetry);
  return -1;
}

static int bio_write(Bio* bio, const char* data, size_t bytes, size_t* count) {
  const SslFunctions& call = *callback_functions.load();
  call.bio_clear_flags(bio, openssl::kBioRead | openssl::kBioWrite | openssl::kBioShouldRetry);
  auto* wire = static_cast<TlsWire*>(call.bio_get_data(bio));
  *count = wire->write(reinterpret_cast<const std::byte*>(data), bytes);
  if (*count > 0) return 1;
  call.bio_set_flags(bio, openssl::kBioWrite | openssl::kBioShouldRetry);
  return -1;
}

static long bio_ctrl(Bio* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
  return command == openssl::kBioCtrlFlush ? 1 : 0;
}

// ---- the settings ----

Status TlsContext::set_up() {
  const SslFunctions& call = functions_;
  const auto failed = [](const char* what) {
    return Status(StatusCode::kSystem, std::string("OpenSSL refuses ") + what);
  };
  if (call.init_ssl(0, nullptr) != 1) return failed("to start");
  method_ = call.bio_meth_new(call.bio_get_new_index(), "ciuic");
  if (method_ == nullptr || call.bio_meth_set_read_ex(method_, bio_read) != 1 ||
      call.bio_meth_set_write_ex(method_, bio_write) != 1 ||
      call.bio_meth_set_ctrl(method_, bio_ctrl) != 1) {
    return failed("a BIO of our own");
  }
  context_ = call.ctx_new(call.tls_method());
  if (context_ == nullptr) return failed("a context");
  const auto ctrl = [&](int command, long number) {
    return call.ctx_ctrl(context_, command, number, nullptr) == 1;
  };
  if (!ctrl(openssl::kCtrlMinProtocol, openssl::kTls13) ||
      !ctrl(openssl::kCtrlMaxProtocol, openssl::kTls13)) {
    return failed("TLS 1.3");
  }
  if (call.ctx_set_ciphersuites(context_, kCipherSuite) != 1) return failed(kCipherSuite);
  if (call.ctx_set_num_tickets(context_, 0) != 1) return failed("to send no tickets");
  call.ctx_ctrl(context_, openssl::kCtrlSessionCacheMode, 0, nullptr);
  call.ctx_ctrl(context_, openssl::kCtrlMode, openssl::kModeAcceptMovingWriteBuffer, nullptr);
  call.ctx_set_options(context_, openssl::kOptionNoTicket | openssl::kOptionNoRenegotiation);
  call.ctx_clear_options(context_, openssl::kOptionIgnoreUnexpectedEof |
                                       openssl::kOptionAllowNoDheKex |
                                       openssl::kOptionMiddleboxCompat);
  call.ctx_set_psk_use_session_callback(context_, use_psk);
  call.ctx_set_psk_find_session_callback(context_, find_psk);
  return {};
}

TlsContext::~TlsContext() {
  if (callback_functions.load() == &functions_) callback_functions.store(nullptr);
  if (context_ != nullptr) functions_.ctx_free(context_);
  if (method_ != nullptr) functions_.bio_meth_free(method_);
}

Result<std::unique_ptr<TlsContext>> TlsContext::create(const SslFunctions& functions) {
  std::unique_ptr<TlsContext> context(new TlsContext(functions));
  CIUIC_RETURN_IF_ERROR(context->set_up());
  callback_functions.store(&context->functions_);
  return context;
}

static Result<const TlsContext*> open_once() {
  Result<SslFunctions> functions = openssl::open_libssl();
  if (!functions.ok()) return functions.status();
  Result<std::unique_ptr<TlsContext>> context = TlsContext::create(*functions);
  if (!context.ok()) return context.status();
  InOpenssl::guard_exit();
  return context->release();
}

Result<const TlsContext*> TlsContext::instance() {
  static const auto& context = *new Result<const TlsContext*>(open_once());  // never destroyed
  return context;
}

Ssl* TlsContext::open(bool accepts, TlsWire* wire, const TlsKey* key) const {
  const SslFunctions& call = functions_;
  Ssl* ssl = call.ssl_new(context_);
  if (ssl == nullptr) return nullptr;
  Bio* bio = call.bio_new(method_);
  if (bio == nullptr || call.set_ex_data(ssl, kKeyIndex, const_cast<TlsKey*>(key)) != 1) {
    if (bio != nullptr) call.set_bio(ssl, bio, bio);  // freed with it
    call.ssl_free(ssl);
    return nullptr;
  }
  call.bio_set_data(bio, wire);
  call.bio_set_init(bio, 1);
  call.set_bio(ssl, bio, bio);  // takes it over
  if (accepts) {
    call.set_accept_state(ssl);
  } else {
    // No certificate is trusted: a server that shows one, for want of the key, is refused.
    call.set_verify(ssl, openssl::kVerifyPeer, nullptr);
    call.set_connect_state(ssl);
  }
  return ssl;
}

}  // namespace ciuic::security
