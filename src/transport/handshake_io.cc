// SPDX-License-Identifier: Apache-2.0
// handshake_io.cc: the pieces go out and come in as the socket takes and has them.

#include "transport/handshake_io.h"

#include "drivers/posix/socket.h"

namespace ciuic::transport {

Result<bool> HandshakeIo::progress(int fd) {
  while (true) {
    std::string& out = handshake_.to_send();
    while (!out.empty()) {
      Result<size_t> count = posix::send_some(fd, out.data(), out.size());
      if (!count.ok()) return count.status();
      if (*count == 0) return false;
      out.erase(0, *count);
    }
    const size_t wanted = handshake_.wanted();
    if (wanted == 0) {
      if (handshake_.done()) return true;
      return Status(StatusCode::kPermission, "the handshake has failed");
    }
    const size_t had = received_.size();
    received_.resize(wanted);
    Result<size_t> count = posix::receive_some(fd, received_.data() + had, wanted - had);
    received_.resize(had + (count.ok() ? *count : 0));
    if (!count.ok()) return count.status();
    if (*count == 0) return false;
    if (received_.size() < wanted) continue;
    CIUIC_RETURN_IF_ERROR(handshake_.receive(received_));
    received_.clear();
  }
}

}  // namespace ciuic::transport
