// SPDX-License-Identifier: Apache-2.0
// interface_filter.cc: the terms of a list, and what each of them matches.

#include "topology/interface_filter.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/printable.h"
#include "drivers/posix/address.h"

namespace ciuic::topology {

static Status wrong(std::string_view term, const char* why) {
  return {StatusCode::kInvalidArgument,
          fmt::format("CIUIC_SOCKET_IFNAME: \"{}\" {}; the forms are =eth0 (exact name), eth (how "
                      "names begin), 10.0.0.0/8 (network), 10.1.2.3 (address), ^docker,lo (not "
                      "these), and lists of them with commas",
                      printable(std::string(term), 128), why)};
}

// Its family, or 0 where it is no address. The zone of fe80::1%eth0 is left out.
static int read_address(std::string_view text, std::array<uint8_t, 16>* bytes) {
  const std::string plain(text.substr(0, text.find('%')));
  for (const int family : {AF_INET, AF_INET6}) {
    if (inet_pton(family, plain.c_str(), bytes->data()) == 1) return family;
  }
  return 0;
}

// Digits and dots, or more than one colon: no interface is called so, but a mistyped address is.
static bool looks_like_address(std::string_view text) {
  return std::count(text.begin(), text.end(), ':') > 1 ||
         (text.find('.') != std::string_view::npos &&
          text.find_first_not_of("0123456789.") == std::string_view::npos);
}

Result<InterfaceFilter::Term> InterfaceFilter::parse_network(std::string_view text) {
  Term term;
  term.kind = Term::Kind::kNetwork;
  const size_t slash = text.find('/');
  const std::string_view address = text.substr(0, slash);
  term.family = read_address(address, &term.bytes);
  if (term.family == 0) return wrong(text, "is no address");
  const int most = term.family == AF_INET ? 32 : 128;
  term.bits = most;
  if (slash != std::string_view::npos) {
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + slash + 1, end, term.bits);
    if (error != std::errc{} || rest != end || term.bits < 0 || term.bits > most) {
      return wrong(text, term.family == AF_INET ? "has no length from 0 to 32 after its /"
                                                : "has no length from 0 to 128 after its /");
    }
  }
  const size_t percent = address.find('%');
  if (percent != std::string_view::npos) term.zone = address.substr(percent + 1);
  return term;
}

Result<InterfaceFilter::Term> InterfaceFilter::parse_term(std::string_view text) {
  Term term;
  if (text.starts_with('=')) {
    term.kind = Term::Kind::kExact;
    text.remove_prefix(1);
  } else if (std::array<uint8_t, 16> bytes;
             text.find('/') != std::string_view::npos || read_address(text, &bytes) != 0) {
    return parse_network(text);
  } else if (looks_like_address(text)) {
    return wrong(text, "is no address");
  }
  if (text.empty() || text.find_first_of("=^/") != std::string_view::npos ||
      printable(std::string(text)) != text || text.find(' ') != std::string_view::npos) {
    return wrong(text, "is no name of an interface");
  }
  term.name = text;
  return term;
}

Result<InterfaceFilter> InterfaceFilter::parse(std::string_view text) {
  InterfaceFilter filter;
  bool refused = false;
  while (true) {
    const size_t comma = text.find(',');
    std::string_view part = text.substr(0, comma);
    if (part.starts_with('^')) {
      refused = true;
      part.remove_prefix(1);
    }
    Result<Term> term = parse_term(part);
    if (!term.ok()) return term.status();
    (refused ? filter.refused_ : filter.taken_).push_back(std::move(*term));
    if (comma == std::string_view::npos) return filter;
    text.remove_prefix(comma + 1);
  }
}

static bool same_bits(const uint8_t* a, const uint8_t* b, int bits) {
  const auto whole = static_cast<size_t>(bits / 8);
  if (std::memcmp(a, b, whole) != 0) return false;
  const int rest = bits % 8;
  return rest == 0 || ((a[whole] ^ b[whole]) >> (8 - rest)) == 0;
}

bool InterfaceFilter::matches(const Term& term, const std::string& interface_name,
                              const std::string& address) {
  switch (term.kind) {
    case Term::Kind::kExact: return interface_name == term.name;
    case Term::Kind::kPrefix: return interface_name.starts_with(term.name);
    case Term::Kind::kNetwork: break;
  }
  std::array<uint8_t, 16> bytes{};
  return read_address(address, &bytes) == term.family &&
         (term.zone.empty() || term.zone == interface_name) &&
         same_bits(bytes.data(), term.bytes.data(), term.bits);
}

bool InterfaceFilter::refuses(const std::string& interface_name, const std::string& address) const {
  return std::any_of(refused_.begin(), refused_.end(),
                     [&](const Term& term) { return matches(term, interface_name, address); });
}

std::optional<size_t> InterfaceFilter::place_of(const std::string& interface_name,
                                                const std::string& address) const {
  const bool loopback = posix::Address{address, 0}.is_loopback();
  for (size_t i = 0; i < taken_.size(); ++i) {
    const bool wide = taken_[i].kind == Term::Kind::kNetwork && taken_[i].bits < 8;
    if (!(loopback && wide) && matches(taken_[i], interface_name, address)) return i;
  }
  return std::nullopt;
}

}  // namespace ciuic::topology
