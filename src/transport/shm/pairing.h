// SPDX-License-Identifier: Apache-2.0
// pairing.h: makes the shared-memory links between the ranks of one host.
//
// Being on one host is proven for every pair: both know the secret, each passes its segment to the
// other over an abstract Unix socket, and each says what it read in the other's.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "ciuic/status.h"
#include "drivers/posix/poller.h"
#include "drivers/posix/unique_fd.h"
#include "transport/link.h"
#include "transport/shm/segment.h"

namespace ciuic::transport::shm {

// A listening abstract Unix socket under a random name, which goes into the rank's card.
struct UnixListener {
  posix::UniqueFd fd;
  std::string name;
};
Result<UnixListener> listen_abstract();

struct LocalPeer {
  int rank = -1;
  std::string unix_name;
};

// What the pairing is part of, and may fail meanwhile.
class PairingWatch {
 public:
  virtual ~PairingWatch() = default;
  virtual void add_to(std::vector<pollfd>* fds) = 0;
  // At its entries after poll(2), or at none. Not ok: it has failed. Never blocks.
  virtual Status look(std::span<const pollfd> entries) = 0;
};

struct PairingOptions {
  int rank = -1;
  int listener = -1;             // descriptor; stays the caller's, who may close it afterwards
  std::vector<LocalPeer> peers;  // the candidates: every rank names the same set, without itself
  std::string secret;
  std::string job;
  uint32_t epoch = 0;
  uint32_t group = 0;
  TimeNs deadline = kNever;
  posix::Poller* poller = nullptr;  // outlives the links; its doorbell is given to the peers
  PairingWatch* watch = nullptr;
  std::shared_ptr<memory::SharedPool> pool;  // tensors that the peers may read; may be null
};

struct LocalLink {
  int rank = -1;
  std::unique_ptr<Link> link;  // null: these two are not on one host, as far as can be proven
  Status reason;               // then why
};

struct LocalLinks {
  std::shared_ptr<Segment> segment;  // null where no pair came about
  std::vector<LocalLink> links;      // one for each candidate, in their order
  int strangers = 0;                 // connections that were turned away
};

// Pairs with all candidates at once and returns when each is settled, at the deadline at the
// latest. The two ranks of a pair agree on the outcome unless one of them dies meanwhile.
// kInvalidArgument: more than kMaxLocalRanks. kResource: no memory for the segment. What the watch
// says ends it at once.
Result<LocalLinks> connect_local_peers(const PairingOptions& options);

}  // namespace ciuic::transport::shm
