// SPDX-License-Identifier: Apache-2.0
// prove.h: which addresses of each host can be reached from each other host.
//
// The lowest rank of a host stands for it. It connects to those of all other hosts, at all of their
// addresses, by one short connection each that proves the secret.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "bootstrap/assembly.h"
#include "ciuic/status.h"
#include "drivers/posix/address.h"
#include "drivers/posix/unique_fd.h"

namespace ciuic::bootstrap {

// Between every two hosts (by the cards' host_id), in both directions.
class Reachable {
 public:
  // Where `from` reaches the acceptor of `to`, the best first. Between ranks of one host nothing
  // was proven: those of the card, loopback first.
  std::vector<posix::Address> addresses(int from, int to) const;

 private:
  friend Result<Reachable> prove_addresses(Assembly*, const std::vector<posix::UniqueFd>&, TimeNs);
  Roll roll_;
  std::vector<int> host_of_;                                  // by rank
  std::vector<std::vector<std::vector<std::string>>> works_;  // [from][to]: address texts, by host
};

// All ranks call it; where there is one host it returns at once. `listeners` are this rank's
// acceptor's: no data connection may come while it runs on any rank, so the ranks gather() once
// more before they use their links. kPeerLost, on all ranks: names both hosts, the addresses that
// were tried, and what happened at each.
Result<Reachable> prove_addresses(Assembly* assembly, const std::vector<posix::UniqueFd>& listeners,
                                  TimeNs deadline);

}  // namespace ciuic::bootstrap
