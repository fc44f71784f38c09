// SPDX-License-Identifier: Apache-2.0
// ssl.h: OpenSSL's libssl, opened at run time: no part of the library links it, or wants its
// headers.
//
// The functions are OpenSSL 3's, under their names without prefix; its manual says what each does.
// Which of them are called with what is security/tls_context.h's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ciuic/status.h"

namespace ciuic::openssl {

// OpenSSL's opaque types: only pointers to them are ever held.
struct Ssl;
struct SslContext;
struct SslMethod;
struct SslSession;
struct SslCipher;
struct Bio;
struct BioMethod;

// As in <openssl/ssl.h> and <openssl/bio.h>; part of their ABI.
inline constexpr int kErrorSsl = 1;
inline constexpr int kErrorWantRead = 2;
inline constexpr int kErrorWantWrite = 3;
inline constexpr int kErrorSyscall = 5;
inline constexpr int kErrorZeroReturn = 6;
inline constexpr int kCtrlMode = 33;
inline constexpr int kCtrlSessionCacheMode = 44;
inline constexpr int kCtrlMinProtocol = 123;
inline constexpr int kCtrlMaxProtocol = 124;
inline constexpr long kModeAcceptMovingWriteBuffer = 0x2;
inline constexpr long kModeReleaseBuffers = 0x10;
inline constexpr long kTls12 = 0x0303;
inline constexpr long kTls13 = 0x0304;
inline constexpr uint64_t kOptionIgnoreUnexpectedEof = uint64_t{1} << 7;
inline constexpr uint64_t kOptionAllowNoDheKex = uint64_t{1} << 10;
inline constexpr uint64_t kOptionNoTicket = uint64_t{1} << 14;
inline constexpr uint64_t kOptionMiddleboxCompat = uint64_t{1} << 20;
inline constexpr uint64_t kOptionNoRenegotiation = uint64_t{1} << 30;
inline constexpr int kVerifyPeer = 1;
inline constexpr int kKeyUpdateNotRequested = 0;
inline constexpr int kKeyUpdateRequested = 1;
inline constexpr int kBioCtrlFlush = 11;
inline constexpr int kBioRead = 0x01;
inline constexpr int kBioWrite = 0x02;
inline constexpr int kBioShouldRetry = 0x08;

using UsePsk = int (*)(Ssl* ssl, const void* digest, const unsigned char** identity,
                       size_t* identity_bytes, SslSession** session);
using FindPsk = int (*)(Ssl* ssl, const unsigned char* identity, size_t identity_bytes,
                        SslSession** session);

// What is used of libssl, and of the libcrypto that it brings along. A test may stand in for any.
struct SslFunctions {
  int (*init_ssl)(uint64_t options, const void* settings) = nullptr;
  const SslMethod* (*tls_method)() = nullptr;

  SslContext* (*ctx_new)(const SslMethod* method) = nullptr;
  void (*ctx_free)(SslContext* context) = nullptr;
  long (*ctx_ctrl)(SslContext* context, int command, long number, void* pointer) = nullptr;
  uint64_t (*ctx_set_options)(SslContext* context, uint64_t options) = nullptr;
  uint64_t (*ctx_clear_options)(SslContext* context, uint64_t options) = nullptr;
  int (*ctx_set_ciphersuites)(SslContext* context, const char* names) = nullptr;
  int (*ctx_set_num_tickets)(SslContext* context, size_t count) = nullptr;
  void (*ctx_set_psk_use_session_callback)(SslContext* context, UsePsk callback) = nullptr;
  void (*ctx_set_psk_find_session_callback)(SslContext* context, FindPsk callback) = nullptr;

  Ssl* (*ssl_new)(SslContext* context) = nullptr;
  void (*ssl_free)(Ssl* ssl) = nullptr;
  long (*ssl_ctrl)(Ssl* ssl, int command, long number, void* pointer) = nullptr;
  void (*set_bio)(Ssl* ssl, Bio* read, Bio* write) = nullptr;
  int (*set_ex_data)(Ssl* ssl, int index, void* data) = nullptr;
  void* (*get_ex_data)(const Ssl* ssl, int index) = nullptr;
  void (*set_verify)(Ssl* ssl, int mode, const void* callback) = nullptr;
  void (*set_connect_state)(Ssl* ssl) = nullptr;
  void (*set_accept_state)(Ssl* ssl) = nullptr;
  int (*do_handshake)(Ssl* ssl) = nullptr;
  int (*read_ex)(Ssl* ssl, void* out, size_t bytes, size_t* count) = nullptr;
  int (*write_ex)(Ssl* ssl, const void* data, size_t bytes, size_t* count) = nullptr;
  int (*shutdown)(Ssl* ssl) = nullptr;
  int (*get_error)(const Ssl* ssl, int returned) = nullptr;
  int (*pending)(const Ssl* ssl) = nullptr;
  int (*version)(const Ssl* ssl) = nullptr;
  int (*session_reused)(const Ssl* ssl) = nullptr;
  int (*key_update)(Ssl* ssl, int type) = nullptr;

  SslSession* (*session_new)() = nullptr;
  void (*session_free)(SslSession* session) = nullptr;
  int (*session_set1_master_key)(SslSession* session, const unsigned char* key,
                                 size_t bytes) = nullptr;
  int (*session_set_cipher)(SslSession* session, const SslCipher* cipher) = nullptr;
  int (*session_set_protocol_version)(SslSession* session, int version) = nullptr;
  const SslCipher* (*cipher_find)(Ssl* ssl, const unsigned char* code) = nullptr;

  int (*bio_get_new_index)() = nullptr;
  BioMethod* (*bio_meth_new)(int type, const char* name) = nullptr;
  void (*bio_meth_free)(BioMethod* method) = nullptr;
  int (*bio_meth_set_read_ex)(BioMethod* method,
                              int (*read)(Bio*, char*, size_t, size_t*)) = nullptr;
  int (*bio_meth_set_write_ex)(BioMethod* method,
                               int (*write)(Bio*, const char*, size_t, size_t*)) = nullptr;
  int (*bio_meth_set_ctrl)(BioMethod* method, long (*ctrl)(Bio*, int, long, void*)) = nullptr;
  Bio* (*bio_new)(const BioMethod* method) = nullptr;
  void (*bio_set_init)(Bio* bio, int init) = nullptr;
  void (*bio_set_data)(Bio* bio, void* data) = nullptr;
  void* (*bio_get_data)(Bio* bio) = nullptr;
  void (*bio_set_flags)(Bio* bio, int flags) = nullptr;
  void (*bio_clear_flags)(Bio* bio, int flags) = nullptr;

  unsigned long (*err_get_error)() = nullptr;
  void (*err_clear_error)() = nullptr;
  const char* (*err_reason_error_string)(unsigned long error) = nullptr;
};

// Opens the library and looks all of them up; it stays open for the life of the process.
// kUnavailable says what to install.
Result<SslFunctions> open_libssl(const std::string& name = "libssl.so.3");

}  // namespace ciuic::openssl
