// SPDX-License-Identifier: Apache-2.0
// tls_fuzz.cc: two ends of a TLS stream, and somebody in between who cuts, changes, drops, doubles
// and delays what they say. What an end reads is what the other wrote, up to where it notices.

#include <array>
#include <memory>
#include <string>

#include "input.h"
#include "security/tls_stream.h"

using namespace ciuic;
using security::TlsStream;

namespace {

constexpr size_t kMostWaiting = 200'000;

// The byte that is written, and must be read, as number `at` from this end.
std::byte byte_at(bool accepts, size_t at) {
  return static_cast<std::byte>(at * 31 + (at >> 8) + (accepts ? 1 : 0));
}

struct End {
  std::unique_ptr<TlsStream> stream;
  std::string on_its_way;  // to the other end
  size_t written = 0;
  size_t read = 0;  // of what the other wrote
  bool shaken = false;
  bool closed = false;
  bool failed = false;
  Status status;  // how reading ended
};

class Conversation {
 public:
  Conversation(bool same_key, uint64_t records_per_key) : is_honest_(same_key) {
    for (const bool accepts : {false, true}) {
      security::TlsOptions options;
      options.accepts = accepts;
      options.key = std::string(32, accepts && !same_key ? 'x' : 'k');
      options.records_per_key = records_per_key;
      auto made = TlsStream::create(options);
      fuzz::require(made.ok(), "OpenSSL is there");
      ends_[accepts ? 1 : 0].stream = std::move(*made);
    }
  }

  void act(fuzz::Input* input);
  void come_to_rest();
  bool is_honest() const { return is_honest_; }
  const End& end(int side) const { return ends_[side]; }

 private:
  void shake(End* end) {
    if (end->shaken || end->failed) return;
    const Result<bool> done = end->stream->shake_hands();
    end->failed = !done.ok();
    end->shaken = done.ok() && *done;
    if (end->failed) fuzz::require_text(done.status());
  }

  void write(int side, size_t bytes) {
    End& end = ends_[side];
    if (!end.shaken || end.closed || !end.status.ok()) return;
    std::array<std::byte, security::kTlsRecordBytes> data;
    bytes = std::min(bytes, data.size());
    for (size_t i = 0; i < bytes; ++i) data[i] = byte_at(side == 1, end.written + i);
    const Result<bool> taken = end.stream->write({data.data(), bytes});
    if (taken.ok() && *taken) end.written += bytes;
    collect(side);
  }

  void read(int side) {
    End& end = ends_[side];
    if (!end.shaken || !end.status.ok()) return;
    std::array<std::byte, 5000> out;
    const Result<size_t> count = end.stream->read(out);
    if (!count.ok()) end.status = count.status();
    for (size_t i = 0; count.ok() && i < *count; ++i) {
      fuzz::require(out[i] == byte_at(side == 0, end.read + i), "what is read was written");
    }
    end.read += count.ok() ? *count : 0;
    fuzz::require(end.read <= ends_[1 - side].written, "no more is read than was written");
    collect(side);
  }

  // What an end has to say goes on its way.
  void collect(int side) {
    End& end = ends_[side];
    const auto said = end.stream->to_send();
    const size_t room = kMostWaiting - std::min(kMostWaiting, end.on_its_way.size());
    const size_t bytes = std::min(said.size(), room);
    end.on_its_way.append(reinterpret_cast<const char*>(said.data()), bytes);
    end.stream->sent(bytes);
  }

  // So many bytes arrive at the other end, as far as it has room.
  void carry(int from, size_t bytes) {
    collect(from);
    std::string& waiting = ends_[from].on_its_way;
    bytes = std::min(bytes, waiting.size());
    const auto* data = reinterpret_cast<const std::byte*>(waiting.data());
    waiting.erase(0, ends_[1 - from].stream->take({data, bytes}));
  }

  std::array<End, 2> ends_;
  bool is_honest_;
};

void Conversation::act(fuzz::Input* input) {
  const int side = input->below(2);
  std::string& waiting = ends_[side].on_its_way;
  switch (input->below(12)) {
    case 0: write(side, input->u16()); break;
    case 1: write(side, input->u8()); break;
    case 2:
    case 3: read(side); break;
    case 4: carry(side, input->u8()); break;
    case 5:
    case 6: carry(side, SIZE_MAX); break;
    case 7:
    case 8: shake(&ends_[side]); break;
    case 9:
      if (ends_[side].shaken && !ends_[side].closed) ends_[side].stream->close();
      ends_[side].closed = ends_[side].closed || ends_[side].shaken;
      break;
    case 10:
      if (!waiting.empty()) {
        const uint8_t mask = input->u8();
        char& byte = waiting[input->u16() % waiting.size()];
        byte = static_cast<char>(byte ^ mask);
        is_honest_ = is_honest_ && mask == 0;
      }
      break;
    default: {
      is_honest_ = false;
      const size_t at = waiting.empty() ? 0 : input->u16() % waiting.size();
      if (input->flag()) {
        waiting.insert(at, input->text());
      } else if (input->flag()) {
        waiting.erase(at, input->u8());
      } else {
        ends_[1 - side].stream->end_input();
      }
    }
  }
}

void Conversation::come_to_rest() {
  for (int round = 0; round < 200; ++round) {
    for (int side = 0; side < 2; ++side) {
      shake(&ends_[side]);
      carry(side, SIZE_MAX);
      read(1 - side);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const bool same_key = input.below(8) != 0;
  Conversation conversation(same_key, /*records_per_key=*/1 + input.u8());
  for (int actions = 0; actions < 200 && !input.empty(); ++actions) conversation.act(&input);
  conversation.come_to_rest();
  for (int side = 0; side < 2; ++side) {
    const End& end = conversation.end(side);
    if (!same_key) fuzz::require(!end.shaken || end.read == 0, "another key reads nothing");
    if (!conversation.is_honest()) continue;
    fuzz::require(end.shaken, "two honest ends meet");
    fuzz::require(end.read == conversation.end(1 - side).written, "all that was written is read");
    const StatusCode code = end.status.code();
    fuzz::require(code == StatusCode::kOk || code == StatusCode::kClosed, "no error undisturbed");
  }
  return 0;
}
