// SPDX-License-Identifier: Apache-2.0
// card.cc: cards as bytes, and what two of them must share.
//
// A card begins with the number of its form and the library's version, in every version: a rank of
// another version can then be refused by name even where the rest cannot be read.

#include "bootstrap/card.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "bootstrap/bytes.h"
#include "ciuic/version.h"

namespace ciuic::bootstrap {

static constexpr uint32_t kCardForm = 2;
static constexpr size_t kMaxText = 256;
static constexpr uint32_t kMaxAddresses = 32;
static constexpr uint32_t kMaxAgreed = 16;

std::string Card::who() const {
  const std::string former =
      former_rank < 0 ? "" : fmt::format("; rank {} of the group before", former_rank);
  return fmt::format("rank {} (host {}, process {}{})", rank, host_name, pid, former);
}

std::string rank_name(int rank, int former_rank) {
  if (former_rank < 0) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (rank {} of the group before)", rank, former_rank);
}

static void write_text(ByteWriter* out, const std::string& text, size_t most = kMaxText) {
  out->text(std::string_view(text).substr(0, most));
}

static std::string read_text(ByteReader* in, size_t most = kMaxText) {
  return printable(in->text(most), most);
}

static void write_addresses(ByteWriter* out, const std::vector<posix::Address>& addresses) {
  const size_t count = std::min<size_t>(addresses.size(), kMaxAddresses);
  out->u32(static_cast<uint32_t>(count));
  for (size_t i = 0; i < count; ++i) {
    write_text(out, addresses[i].text);
    out->u32(addresses[i].port);
  }
}

static std::vector<posix::Address> read_addresses(ByteReader* in) {
  std::vector<posix::Address> addresses(in->count(8, kMaxAddresses));
  for (posix::Address& address : addresses) {
    address.text = read_text(in);
    address.port = static_cast<uint16_t>(in->u32());
  }
  return addresses;
}

std::string encode(const Card& card) {
  ByteWriter out;
  out.u32(kCardForm);
  write_text(&out, card.library_version);
  out.u32(card.wire_version);
  out.u32(static_cast<uint32_t>(card.rank)).u32(static_cast<uint32_t>(card.size)).u64(card.uid);
  out.u32(static_cast<uint32_t>(card.pid)).u64(card.start_ticks);
  write_text(&out, card.host_name);
  write_text(&out, card.machine_id);
  write_text(&out, card.host_id);
  out.u32(static_cast<uint32_t>(card.cores));
  write_text(&out, card.unix_name);
  write_addresses(&out, card.addresses);
  write_addresses(&out, card.loopback);
  out.u32(card.transports);
  write_text(&out, card.gpu.bus_id);
  out.u32(static_cast<uint32_t>(card.gpu.nccl_version));
  write_text(&out, card.gpu.why_not, kMaxReason);
  const size_t agreed = std::min<size_t>(card.agreed.size(), kMaxAgreed);
  out.u32(static_cast<uint32_t>(agreed));
  for (size_t i = 0; i < agreed; ++i) {
    write_text(&out, card.agreed[i].first);
    write_text(&out, card.agreed[i].second);
  }
  return out.take();
}

Result<Card> decode_card(std::string_view bytes) {
  ByteReader in(bytes);
  Card card;
  const uint32_t form = in.u32();
  card.library_version = read_text(&in);
  if (in.failed()) return Status(StatusCode::kInvalidArgument, "a card that cannot be read");
  if (form != kCardForm) {
    return Status(StatusCode::kMismatch,
                  fmt::format("the peer has Ciuic {}, this process {}; they do not work together",
                              card.library_version, CIUIC_VERSION));
  }
  card.wire_version = in.u32();
  card.rank = static_cast<int32_t>(in.u32());
  card.size = static_cast<int32_t>(in.u32());
  card.uid = in.u64();
  card.pid = static_cast<int32_t>(in.u32());
  card.start_ticks = in.u64();
  card.host_name = read_text(&in);
  card.machine_id = read_text(&in);
  card.host_id = read_text(&in);
  card.cores = static_cast<int32_t>(in.u32());
  card.unix_name = read_text(&in);
  card.addresses = read_addresses(&in);
  card.loopback = read_addresses(&in);
  card.transports = in.u32();
  card.gpu.bus_id = read_text(&in);
  card.gpu.nccl_version = static_cast<int32_t>(in.u32());
  card.gpu.why_not = read_text(&in, kMaxReason);
  card.agreed.resize(in.count(8, kMaxAgreed));
  for (auto& [name, value] : card.agreed) {
    name = read_text(&in);
    value = read_text(&in);
  }
  if (!in.complete()) return Status(StatusCode::kInvalidArgument, "a card that cannot be read");
  return card;
}

static Status differ(const char* what, const Card& a, const std::string& a_value, const Card& b,
                     const std::string& b_value) {
  return Status(StatusCode::kMismatch, fmt::format("{} differs: {} has {}, {} has {}", what,
                                                   a.who(), a_value, b.who(), b_value));
}

Status compare(const Card& a, const Card& b) {
  if (a.library_version != b.library_version) {
    return differ("the version of Ciuic", a, a.library_version, b, b.library_version);
  }
  if (a.wire_version != b.wire_version) {
    return differ("the wire version", a, std::to_string(a.wire_version), b,
                  std::to_string(b.wire_version));
  }
  if (a.size != b.size) {
    return differ("the number of ranks", a, std::to_string(a.size), b, std::to_string(b.size));
  }
  for (size_t i = 0; i < std::min(a.agreed.size(), b.agreed.size()); ++i) {
    if (a.agreed[i] == b.agreed[i]) continue;
    return differ(a.agreed[i].first.c_str(), a, a.agreed[i].second, b, b.agreed[i].second);
  }
  if (a.agreed.size() != b.agreed.size()) {
    return differ("the number of options", a, std::to_string(a.agreed.size()), b,
                  std::to_string(b.agreed.size()));
  }
  return {};
}

}  // namespace ciuic::bootstrap
