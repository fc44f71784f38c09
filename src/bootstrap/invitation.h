// SPDX-License-Identifier: Apache-2.0
// invitation.h: what rank 0 leaves in the store, and how the others find the right one.
//
// A store may outlive the group: the job is restarted on the same directory, or the group is made
// again in the same processes. So keys of earlier incarnations may be there, and processes of them
// may still be about. One counter for each group name tells incarnations apart:
//
//   2e - 1   incarnation e is open: rank 0 has left its invitation
//   2e       incarnation e is over: its ranks have joined, or it failed; the next one is e + 1
//
// Rank 0 leaves the invitation first and then raises the counter, so whoever sees an odd number
// finds an invitation. It raises it again when the join is over. If rank 0 dies in between, the
// number stays odd, and the invitation names an address at which nobody proves its secret. So a
// reader that meets an odd number tries that invitation, and where nobody answers waits for that of
// the next incarnation, while it now and then tries the open one again. It never waits on a key
// that nobody will write: the next rank 0 writes just that one. The secret is new with each
// incarnation: a process of an older one can reach the new rank 0 only by reading the new
// invitation, that is by joining, and is then seen as a rank that is there twice.
//
// Two processes that both believe to be rank 0 would write the same key. The first to raise the
// incarnation's claim counter writes; the other one, or a later one that finds an incarnation open,
// knocks at its rank 0 as everybody does, so that both learn of each other. Only where nobody
// answers (it died) does it take the number over.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "ciuic/status.h"
#include "ciuic/store.h"
#include "drivers/posix/address.h"

namespace ciuic::bootstrap {

struct Invitation {
  uint32_t epoch = 0;
  std::string job;
  std::string secret;
  std::string host_name;
  std::string machine_id;
  std::vector<posix::Address> addresses;  // for other machines
  std::vector<posix::Address> loopback;   // for rank 0's own
  Status failure;  // rank 0 could not even begin; only through a fenced store
};

std::string encode(const Invitation& invitation);
Result<Invitation> decode_invitation(const std::string& bytes);

// A new job id and secret.
Result<Invitation> new_invitation();

// The addresses that a process of `machine_id` should try, the best first.
std::vector<posix::Address> reachable(const std::string& machine_id,
                                      const std::string& of_machine_id,
                                      const std::vector<posix::Address>& addresses,
                                      const std::vector<posix::Address>& loopback);

// The keys of one group name in a store.
class MeetingPlace {
 public:
  MeetingPlace(Store* store, const std::string& group_name);

  struct State {
    uint32_t open = 0;  // the incarnation that is open; 0: none
    uint32_t next = 1;  // the one that comes next
  };
  Result<State> look();

  // The invitation of an incarnation, waiting for it. Nothing there in time, or it has been
  // withdrawn: kTimeout.
  Result<Invitation> read(uint32_t epoch, int64_t timeout_ms);

  // For rank 0. False: another process has claimed that incarnation before.
  Result<bool> claim(uint32_t epoch);
  Status open(const Invitation& invitation, const State& before);
  void close(uint32_t epoch);  // also takes the secret out of the store

 private:
  std::string key(const char* what, uint32_t epoch) const;

  Store* store_;
  std::string prefix_;
};

}  // namespace ciuic::bootstrap
