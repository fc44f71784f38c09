// SPDX-License-Identifier: Apache-2.0
// join.h: from options to links: the ranks of a group find each other.
//
//   1  who am I        rank and size: the options, else the launcher's environment
//   2  where we meet   the options' store, else CIUIC_STORE, else the launcher's PMI or PMIx
//   3  cards           bootstrap/exchange.h: through rank 0, which compares them and answers all
//   4  addresses       between every two hosts one short connection proves what can be reached
//   5  hosts           ranks with one host id pair by shared memory; that it works is the proof
//   6  links           shared memory where proven, TCP elsewhere, connected when first needed
//
// An error on one rank is every rank's error. Blocks until the deadline at most, on one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "bootstrap/assembly.h"
#include "bootstrap/prove.h"
#include "ciuic/options.h"
#include "ciuic/status.h"
#include "communicator/choose_backend.h"
#include "communicator/shrink.h"
#include "drivers/posix/poller.h"
#include "memory/shared_pool.h"
#include "plan/layout.h"
#include "topology/host.h"
#include "transport/link.h"
#include "transport/shm/segment.h"
#include "tuner/tuning_table.h"

namespace ciuic {

struct Joined {
  int rank = 0;
  plan::Layout layout{{0}};
  uint32_t epoch = 0;
  uint32_t group = 0;
  std::string job;  // names this incarnation of the group
  tuner::TuningTable table;
  std::vector<std::unique_ptr<transport::Link>> links;        // by rank; null for this one
  std::shared_ptr<transport::shm::Segment> segment;           // null where no peer shares memory
  std::vector<std::unique_ptr<bootstrap::Channel>> channels;  // of the control plane
  ChosenBackend backend;
  std::unique_ptr<OldGroup> group_at_join;  // what survivors need; null for one rank
  std::map<int, std::string> reasons;  // peers of this host id that do not share memory, and why
  std::string interface_name;          // of the addresses that other machines are given
  std::string store_name;              // empty: one rank, no store
  bool store_is_private = true;
  bool tls = false;        // on every TCP connection of the group: the join's, control's, and links
  uint64_t strangers = 0;  // connections to this rank that proved nothing, and were turned away
  int local_cores = 1;     // that the ranks of this host may use, together
  TimeNs took_ns = 0;
};

// `options` with nothing left to default but rank, size and store. `gpu`: what others are told.
// `poller` outlives the links. `pool`: tensors that peers of this host may read.
Result<Joined> join(const CommunicatorOptions& options, const Config& config,
                    const topology::Host& host, const bootstrap::GpuFacts& gpu,
                    posix::Poller* poller, std::shared_ptr<memory::SharedPool> pool);

// Step 1 and 2 alone.
struct Meeting {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;  // null only for one rank
};
Result<Meeting> find_meeting(const CommunicatorOptions& options, const Config& config,
                             TimeNs deadline);

}  // namespace ciuic
