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
    int lost = 0;                    // how often the other side hung up before the proof
    TimeNs again_at = kNever;        // when it is asked once more
    bool proven() const { return channel.has_value() && channel->proven(); }
  };

  Dial(const std::vector<posix::Address>& addresses, const std::string& secret,
       const security::Identity& identity, size_t max_frame_bytes);

  // Whoever hangs up before the proof may have had too many visitors, strangers among them: it is
  // asked again so often, a little later each time.
  void ask_again(int times) { most_lost_ = times; }

  void add_to(std::vector<pollfd>* fds) const;
  void progress();

  bool any_proven() const;
  bool settled() const;     // every address has been proven or has failed
  TimeNs next_try() const;  // when to call progress() at the latest

  std::vector<Attempt>& attempts() { return attempts_; }

  // The proven channel of the best address; only where any_proven().
  Channel take();

  // "10.0.0.1:4711: Connection refused (ECONNREFUSED, errno 111); ..."
  std::string failures() const;

 private:
  void begin(Attempt* attempt);

  std::vector<Attempt> attempts_;
  std::string secret_;
  security::Identity identity_;
  size_t max_frame_bytes_;
  int most_lost_ = 0;
};

// Returns the first channel that is proven. kTimeout, or why the addresses failed; kPermission and
// kMismatch of one of them come before its other troubles. `who` names the process in the message.
Result<Channel> dial(const std::string& who, const std::vector<posix::Address>& addresses,
                     const std::string& secret, const security::Identity& identity,
                     size_t max_frame_bytes, TimeNs deadline);

}  // namespace ciuic::bootstrap
