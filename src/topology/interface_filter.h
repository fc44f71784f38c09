// SPDX-License-Identifier: Apache-2.0
// interface_filter.h: CIUIC_SOCKET_IFNAME, one syntax for all that people give to such variables.
//
//   =eth0         the interface of that exact name
//   eth           interfaces whose name begins so
//   10.0.0.0/8    addresses of a network, of either family
//   10.1.2.3      that address
//   ^docker,lo    not these; a ^ holds from where it stands to the end of the list
//
// A list has commas. Without anything that is to be taken, all is taken but what is not to be.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ciuic/status.h"

namespace ciuic::topology {

class InterfaceFilter {
 public:
  // kInvalidArgument: an empty term, a network or address of no known form; names the term.
  static Result<InterfaceFilter> parse(std::string_view text);

  // Whether something is named that is to be taken.
  bool names_some() const { return !taken_.empty(); }

  // Whether the address, or its whole interface, is one that is not to be.
  bool refuses(const std::string& interface_name, const std::string& address) const;

  // The place in the list of what first takes the address, or its whole interface. Loopback is not
  // taken for being in a wide network.
  std::optional<size_t> place_of(const std::string& interface_name,
                                 const std::string& address) const;

 private:
  struct Term {
    enum class Kind : uint8_t { kExact, kPrefix, kNetwork } kind = Kind::kPrefix;
    std::string name;                 // of the first two kinds
    std::array<uint8_t, 16> bytes{};  // of the network
    int family = 0;                   // AF_INET or AF_INET6
    int bits = 0;                     // that count
    std::string zone;                 // "eth0" of fe80::1%eth0; empty: any
  };
  static Result<Term> parse_term(std::string_view text);
  static Result<Term> parse_network(std::string_view text);
  static bool matches(const Term& term, const std::string& interface_name,
                      const std::string& address);

  std::vector<Term> taken_;
  std::vector<Term> refused_;
};

}  // namespace ciuic::topology
