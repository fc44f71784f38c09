// SPDX-License-Identifier: Apache-2.0
// exchange.h: the ranks of a group find each other and exchange their cards. Start here.
//
// Rank 0 listens and leaves an invitation in the store (invitation.h); the others connect to it,
// prove the secret and hand over their card. Rank 0 compares the cards and answers everybody with
// the roll of all of them, or with one error. Single-threaded; strangers at rank 0's port cost it a
// bounded number of connections and nobody any time.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "bootstrap/assembly.h"
#include "bootstrap/card.h"
#include "bootstrap/listening.h"
#include "ciuic/status.h"
#include "ciuic/store.h"

namespace ciuic::bootstrap {

struct ExchangeOptions {
  std::string group_name = "default";
  TimeNs deadline = kNever;
  // What is known beside the store, such as CIUIC_SECRET's bytes: mixed into the group's secret, so
  // that reading the store alone is not enough. Alike on all ranks, or empty on all.
  std::string shared_secret;
  bool tls = false;    // CIUIC_TLS; a rank that differs from rank 0 is named
  std::string tuning;  // rank 0's goes to all
  Listening listening;
};

// Returns when all ranks are there; one rank alone needs neither sockets nor a store, which may
// then be null.
//   kInvalidArgument  rank outside [0, size)
//   kMismatch         sizes, versions or options differ, or a rank is there twice; both are named,
//                     and every rank that has come gets the same error
//   kTimeout          names the ranks that did not come
//   kPermission       another shared_secret than rank 0's
//   kUnavailable      no OpenSSL, or for tls no libssl
// `mine.addresses` (but the advertised one) and `mine.loopback` also say where rank 0 listens, at
// ports of its own.
Result<std::unique_ptr<Assembly>> exchange_cards(Store* store, const Card& mine,
                                                 const ExchangeOptions& options);

// The number of a group's name, as it stands in headers and handshakes.
uint32_t group_id(const std::string& group_name);

}  // namespace ciuic::bootstrap
