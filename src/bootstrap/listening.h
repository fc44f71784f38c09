// SPDX-License-Identifier: Apache-2.0
// listening.h: where this process listens, and what it tells others of that.
#pragma once

#include <string>
#include <vector>

#include "base/port_range.h"
#include "ciuic/status.h"
#include "drivers/posix/address.h"
#include "drivers/posix/unique_fd.h"

namespace ciuic::bootstrap {

// CIUIC_PORT_RANGE and CIUIC_ADVERTISE_ADDRESS.
struct Listening {
  PortRange ports;
  // What stands before this host, such as a NAT that hands on what arrives there; no text: nothing.
  // Port 0: it keeps ports as they are. Else its port stands for the first of `ports`, the next one
  // for the second, and so on.
  posix::Address advertised;

  // `advertise`: "1.2.3.4", "1.2.3.4:20000", "fd00::1", "[fd00::1]:20000", or empty.
  // kInvalidArgument: no such thing, a port without a range, or one that leaves no room for it.
  static Result<Listening> from(const std::string& advertise, PortRange ports);
};

// Where the advertised address is one of this host's own, it need only come first.
void prefer_own(Listening* listening, std::vector<std::string>* texts);

// Listens at each numeric address, and appends to `listeners` and `at`. One that cannot be listened
// at is left out; where there are some and none can, that is the error.
Status listen_at_all(const std::vector<std::string>& texts, const Listening& listening,
                     std::vector<posix::UniqueFd>* listeners, std::vector<posix::Address>* at);

// Puts the advertised address before those of listen_at_all(), with the port that leads to the
// first of them of its family.
void advertise(const Listening& listening, std::vector<posix::Address>* at);

}  // namespace ciuic::bootstrap
