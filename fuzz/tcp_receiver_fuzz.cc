// SPDX-License-Identifier: Apache-2.0
// tcp_receiver_fuzz.cc: the bytes of a data connection, in any pieces, whatever is held meanwhile.

#include <deque>
#include <memory>
#include <vector>

#include "input.h"
#include "sockets.h"
#include "transport/tcp/tcp_receiver.h"

using namespace ciuic;
using transport::Arrival;

namespace {

class Reader {
 public:
  explicit Reader(posix::UniqueFd fd) : fd_(std::move(fd)) {}

  // Takes what has come. False: the connection has ended.
  bool look() {
    bool readable = true;
    for (int pass = 0; pass < 64; ++pass) {
      const Result<bool> came = receiver_.fill(fd_.get(), &readable);
      if (!came.ok()) ended_ = true;
      Arrival arrival;
      bool any = false;
      while (true) {
        const Result<bool> next = receiver_.next(&arrival);
        if (!next.ok()) return false;
        if (!*next) break;
        any = true;
        take(arrival);
      }
      if (ended_) return false;
      if (!any && !(came.ok() && *came)) return true;
      if (held_.size() > 3) release();
    }
    return true;
  }

  void release() {
    if (held_.empty()) return;
    receiver_.release(held_.front().token);
    held_.pop_front();
  }

 private:
  void take(const Arrival& arrival) {
    const size_t bytes = arrival.header.payload_bytes;
    if (arrival.data == nullptr && bytes > 0) {
      fuzz::require(placed_ == nullptr && bytes <= wire::kMaxPayloadBytes, "one bounded message");
      placed_ = std::make_unique<std::byte[]>(bytes);  // exactly as large
      receiver_.place(placed_.get());
      return;
    }
    if (placed_ != nullptr) {
      fuzz::require(arrival.data == placed_.get(), "what was placed is where it was placed");
      placed_.reset();
      return;
    }
    // Every byte can be read as long as it is held.
    unsigned sum = 0;
    for (size_t i = 0; i < bytes; ++i) sum += std::to_integer<unsigned>(arrival.data[i]);
    if (bytes > 0) held_.push_back({arrival.token, arrival.data, bytes, sum});
    for (const Held& held : held_) check(held);
  }

  struct Held {
    uint64_t token;
    const std::byte* data;
    size_t bytes;
    unsigned sum;
  };

  static void check(const Held& held) {
    unsigned sum = 0;
    for (size_t i = 0; i < held.bytes; ++i) sum += std::to_integer<unsigned>(held.data[i]);
    fuzz::require(sum == held.sum, "a payload that is held stays");
  }

  posix::UniqueFd fd_;
  transport::tcp::TcpReceiver receiver_;
  std::unique_ptr<std::byte[]> placed_;
  std::deque<Held> held_;
  bool ended_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  fuzz::SocketPair sockets = fuzz::socket_pair();
  Reader reader(std::move(sockets.ours));
  bool goes_on = true;
  while (goes_on && !input.empty()) {
    switch (input.below(4)) {
      case 0: fuzz::say(sockets.theirs, input.bytes(input.u16())); break;
      case 1: fuzz::say(sockets.theirs, std::string(input.u16(), '\x5a')); break;
      case 2: reader.release(); break;
      default: {  // a header that is one, in most fields
        wire::Header header;
        header.type = static_cast<wire::MessageType>(1 + input.below(7));
        header.payload_bytes = input.u16();
        header.message_bytes = header.payload_bytes + uint64_t{input.u8()};
        std::array<std::byte, wire::kHeaderBytes> bytes;
        wire::encode(header, bytes);
        fuzz::say(sockets.theirs, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      }
    }
    goes_on = reader.look();
  }
  return 0;
}
