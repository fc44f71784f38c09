// SPDX-License-Identifier: Apache-2.0
// tls_stream.cc: an Ssl between two buffers.
//
// OpenSSL asks its BIO for exactly the bytes of one record at a time, so what it holds itself is at
// most one record's rest, and everything else lies in TlsWire: read() returns 0 only when both are
// used up.

#include "security/tls_stream.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/fork.h"
#include "security/in_openssl.h"
#include "security/tls_context.h"

namespace ciuic::security {

struct TlsStream::State {
  State(const TlsContext* of, const TlsOptions& options)
      : context(of),
        wire(options.in_bytes, options.out_bytes),
        records_per_key(options.records_per_key) {}

  const TlsContext* context;
  TlsWire wire;
  TlsKey key{};
  openssl::Ssl* ssl = nullptr;
  bool established = false;
  bool closed = false;
  bool wants_to_send = false;
  Status failed;  // final
  uint64_t records_per_key;
  uint64_t records = 0;  // written under the present key
  uint32_t made_in = fork_generation();
};

TlsStream::TlsStream(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<TlsStream>> TlsStream::create(const TlsOptions& options) {
  if (options.key.size() != kTlsKeyBytes) {
    return Status(StatusCode::kInvalidArgument, "a TLS key has 32 bytes");
  }
  Result<const TlsContext*> context = TlsContext::instance();
  if (!context.ok()) return context.status();
  const InOpenssl inside;
  if (!inside.allowed()) return process_exits();
  const openssl::SslFunctions& call = (*context)->functions();
  auto state = std::make_unique<State>(*context, options);
  std::memcpy(state->key.data(), options.key.data(), kTlsKeyBytes);
  call.err_clear_error();
  state->ssl = (*context)->open(options.accepts, &state->wire, &state->key);
  if (state->ssl == nullptr) return Status(StatusCode::kResource, "no memory for a TLS connection");
  if (options.sleeps) {
    call.ssl_ctrl(state->ssl, openssl::kCtrlMode, openssl::kModeReleaseBuffers, nullptr);
  }
  return std::unique_ptr<TlsStream>(new TlsStream(std::move(state)));
}

TlsStream::~TlsStream() {
  const InOpenssl inside;
  // At the process's exit OpenSSL may be gone already; so will be its memory. And another thread
  // may have held a lock of OpenSSL's when a child was forked.
  const bool frees = inside.allowed() && state_->made_in == fork_generation();
  if (frees) state_->context->functions().ssl_free(state_->ssl);
  volatile unsigned char* key = state_->key.data();
  for (size_t i = 0; i < kTlsKeyBytes; ++i) key[i] = 0;
}

std::span<std::byte> TlsStream::room() { return state_->wire.room(); }
void TlsStream::came(size_t bytes) { state_->wire.came(bytes); }
void TlsStream::end_input() { state_->wire.end_input(); }
std::span<const std::byte> TlsStream::to_send() const { return state_->wire.to_send(); }
void TlsStream::sent(size_t bytes) { state_->wire.sent(bytes); }
uint64_t TlsStream::produced() const { return state_->wire.produced(); }
bool TlsStream::can_write() const { return state_->wire.can_write(); }
bool TlsStream::wants_to_send() const { return state_->wants_to_send; }
size_t TlsStream::buffer_bytes() const { return state_->wire.buffer_bytes(); }

size_t TlsStream::take(std::span<const std::byte> bytes) {
  const std::span<std::byte> to = state_->wire.room();
  const size_t count = std::min(to.size(), bytes.size());
  std::memcpy(to.data(), bytes.data(), count);
  state_->wire.came(count);
  return count;
}

// What a call that did not succeed means: ok where it goes on later.
Status TlsStream::verdict(int returned, const char* doing) {
  State& state = *state_;
  const openssl::SslFunctions& call = state.context->functions();
  const int error = call.get_error(state.ssl, returned);
  state.wants_to_send = error == openssl::kErrorWantWrite;
  if (error == openssl::kErrorWantRead || error == openssl::kErrorWantWrite) return {};
  // OpenSSL stops asking at close_notify.
  if (state.wire.end_told()) {
    state.failed = {StatusCode::kPeerLost, "TLS: the connection was cut off without close_notify"};
  } else if (error == openssl::kErrorZeroReturn) {
    state.failed = {StatusCode::kClosed, "end of stream"};
  } else {
    const char* reason = call.err_reason_error_string(call.err_get_error());
    const StatusCode code = state.established ? StatusCode::kPeerLost : StatusCode::kPermission;
    state.failed = {code, std::string("TLS: ") + doing + ": " +
                              (reason != nullptr ? reason : "unknown error of OpenSSL")};
  }
  call.err_clear_error();
  return state.failed;
}

Result<bool> TlsStream::shake_hands() {
  State& state = *state_;
  if (!state.failed.ok()) return state.failed;
  if (state.established) return true;
  const InOpenssl inside;
  if (!inside.allowed()) return process_exits();
  const openssl::SslFunctions& call = state.context->functions();
  call.err_clear_error();
  const int done = call.do_handshake(state.ssl);
  if (done != 1) {
    CIUIC_RETURN_IF_ERROR(verdict(done, "the handshake failed"));
    return false;
  }
  // What the settings leave no other way for, looked at all the same.
  if (call.version(state.ssl) != openssl::kTls13 || call.session_reused(state.ssl) != 1) {
    state.failed = {StatusCode::kPermission, "TLS: the handshake did not use the job's key"};
    return state.failed;
  }
  state.established = true;
  return true;
}

Result<size_t> TlsStream::read(std::span<std::byte> out) {
  State& state = *state_;
  if (!state.failed.ok()) return state.failed;
  CIUIC_ASSERT(state.established);
  if (out.empty()) return size_t{0};
  const InOpenssl inside;
  if (!inside.allowed()) return process_exits();
  const openssl::SslFunctions& call = state.context->functions();
  call.err_clear_error();
  size_t count = 0;
  const int done = call.read_ex(state.ssl, out.data(), out.size(), &count);
  if (done == 1) return count;
  CIUIC_RETURN_IF_ERROR(verdict(done, "receiving failed"));
  return size_t{0};
}

Result<bool> TlsStream::write(std::span<const std::byte> data) {
  State& state = *state_;
  if (!state.failed.ok() && state.failed.code() != StatusCode::kClosed) return state.failed;
  CIUIC_ASSERT(state.established && !state.closed && data.size() <= kTlsRecordBytes);
  if (data.empty()) return true;
  if (!state.wire.can_write()) return false;
  const InOpenssl inside;
  if (!inside.allowed()) return process_exits();
  const openssl::SslFunctions& call = state.context->functions();
  call.err_clear_error();
  if (++state.records > state.records_per_key) {
    state.records = 1;
    call.key_update(state.ssl, openssl::kKeyUpdateNotRequested);  // goes before the next record
  }
  size_t count = 0;
  const int done = call.write_ex(state.ssl, data.data(), data.size(), &count);
  if (done == 1) return true;
  CIUIC_RETURN_IF_ERROR(verdict(done, "sending failed"));
  return false;
}

void TlsStream::close() {
  State& state = *state_;
  const bool says = state.established && !state.closed &&
                    (state.failed.ok() || state.failed.code() == StatusCode::kClosed);
  state.closed = true;
  if (!says) return;
  const InOpenssl inside;
  if (!inside.allowed()) return;
  const openssl::SslFunctions& call = state.context->functions();
  call.err_clear_error();
  call.shutdown(state.ssl);
  call.err_clear_error();
}

}  // namespace ciuic::security
