// SPDX-License-Identifier: Apache-2.0
// dial.h: connects to one process at all of its addresses at once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bootstrap/channel.h"
#include "ciuic/status.h"
#include "drivers/posix/address.h"
#include "security/handshake.h"

namespace ciuic::bootstrap {

// Never blocks: its owner adds its sockets to poll(2) and calls progress().
class Dial {
 public:
  struct Attempt {
    posix::Address address;
    std::optional<Channel> channel;  // while it is under way, or proven
    Status status;                   // why it failed
    bool proven() const { return channel.has_value() && channel->proven(); }
  };

  Dial(const std::vector<posix::Address>& addresses, const std::string& secret,
       const security::Identity& identity, size_t max_frame_bytes);

  void add_to(std::vector<pollfd>* fds) const;
  void progress();

  bool any_proven() const;
  bool settled() const;  // every address has been proven or has failed

  std::vector<Attempt>& attempts() { return attempts_; }

  // The proven channel of the best address; only where any_proven().
  Channel take();

  // "10.0.0.1:4711: Connection refused (ECONNREFUSED, errno 111); ..."
  std::string failures() const;

 private:
  std::vector<Attempt> attempts_;
};

// Returns the first channel that is proven. kTimeout, or why the addresses failed; kPermission and
// kMismatch of one of them come before its other troubles. `who` names the process in the message.
Result<Channel> dial(const std::string& who, const std::vector<posix::Address>& addresses,
                     const std::string& secret, const security::Identity& identity,
                     size_t max_frame_bytes, TimeNs deadline);

}  // namespace ciuic::bootstrap
