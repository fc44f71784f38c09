// SPDX-License-Identifier: Apache-2.0
// invitation.cc: invitations as bytes, and their place in the store.

#include "bootstrap/invitation.h"

#include <fmt/format.h>

#include <cctype>

#include "base/printable.h"
#include "bootstrap/bytes.h"
#include "bootstrap/erasable.h"
#include "drivers/posix/process.h"
#include "security/handshake.h"

namespace ciuic::bootstrap {

static constexpr uint32_t kInvitationForm = 0x31495543;  // "CUI1"
static constexpr size_t kMaxText = 1024;
static constexpr uint32_t kMaxAddresses = 32;
static constexpr size_t kMaxPartOfKey = 128;

static void write_addresses(ByteWriter* out, const std::vector<posix::Address>& addresses) {
  out->u32(static_cast<uint32_t>(addresses.size()));
  for (const posix::Address& address : addresses) out->text(address.text).u32(address.port);
}

static std::vector<posix::Address> read_addresses(ByteReader* in) {
  std::vector<posix::Address> addresses(in->count(8, kMaxAddresses));
  for (posix::Address& address : addresses) {
    address.text = printable(in->text(kMaxText));
    address.port = static_cast<uint16_t>(in->u32());
  }
  return addresses;
}

std::string encode(const Invitation& invitation) {
  ByteWriter out;
  out.u32(kInvitationForm).u32(invitation.epoch).text(invitation.job).text(invitation.secret);
  out.text(invitation.host_name).text(invitation.machine_id);
  write_addresses(&out, invitation.addresses);
  write_addresses(&out, invitation.loopback);
  out.u8(static_cast<uint8_t>(invitation.failure.code()));
  out.text(std::string_view(invitation.failure.message()).substr(0, kMaxText));
  return out.take();
}

Result<Invitation> decode_invitation(const std::string& bytes) {
  ByteReader in(bytes);
  Invitation invitation;
  const uint32_t form = in.u32();
  invitation.epoch = in.u32();
  invitation.job = in.text(64);
  invitation.secret = in.text(64);
  invitation.host_name = printable(in.text(kMaxText));
  invitation.machine_id = printable(in.text(kMaxText));
  invitation.addresses = read_addresses(&in);
  invitation.loopback = read_addresses(&in);
  const auto code = static_cast<StatusCode>(in.u8());
  const std::string message = in.text(kMaxText);
  if (!in.complete() || form != kInvitationForm || code > StatusCode::kSystem) {
    return Status(StatusCode::kMismatch,
                  "what rank 0 left in the store cannot be read: another version of Ciuic, or "
                  "another program's key");
  }
  if (code != StatusCode::kOk) invitation.failure = Status(code, printable(message));
  return invitation;
}

Result<Invitation> new_invitation() {
  Invitation invitation;
  Result<uint64_t> job = posix::random_uint64();
  if (!job.ok()) return job.status();
  invitation.job = fmt::format("{:016x}", *job);
  Result<std::string> secret = security::make_secret();
  if (!secret.ok()) return secret.status();
  invitation.secret = std::move(*secret);
  return invitation;
}

std::vector<posix::Address> reachable(const std::string& machine_id,
                                      const std::string& of_machine_id,
                                      const std::vector<posix::Address>& addresses,
                                      const std::vector<posix::Address>& loopback) {
  // On another machine, loopback would reach whoever listens there.
  if (machine_id != of_machine_id) return addresses;
  std::vector<posix::Address> all = loopback;
  all.insert(all.end(), addresses.begin(), addresses.end());
  return all;
}

// A group's name as a part of a key: letters, digits, '-' and '.', the rest as numbers. Of a long
// one the beginning, and a hash (FNV-1a) that tells it from others that begin alike.
static std::string part_of_key(const std::string& name) {
  std::string text;
  uint64_t hash = 14695981039346656037u;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    if (text.size() > kMaxPartOfKey) continue;
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.';
    text += plain ? std::string(1, c) : fmt::format("_{:02x}", static_cast<unsigned char>(c));
  }
  if (text.size() <= kMaxPartOfKey) return text;
  return fmt::format("{}_{:016x}", text.substr(0, kMaxPartOfKey - 17), hash);
}

MeetingPlace::MeetingPlace(Store* store, const std::string& group_name)
    : store_(store), prefix_("ciuic/" + part_of_key(group_name)) {}

std::string MeetingPlace::key(const char* what, uint32_t epoch) const {
  return fmt::format("{}/{}/{}", prefix_, what, epoch);
}

Result<MeetingPlace::State> MeetingPlace::look() {
  Result<int64_t> counter = store_->add(prefix_ + "/counter", 0);
  if (!counter.ok()) return counter.status();
  const auto number = static_cast<uint32_t>(*counter);
  State state;
  state.open = number % 2 == 1 ? (number + 1) / 2 : 0;
  state.next = (number + 1) / 2 + 1;
  return state;
}

Result<Invitation> MeetingPlace::read(uint32_t epoch, int64_t timeout_ms) {
  Result<std::string> bytes = store_->get(key("invitation", epoch), timeout_ms);
  if (!bytes.ok()) return bytes.status();
  if (bytes->empty()) {
    return Status(StatusCode::kTimeout, fmt::format("incarnation {} is over", epoch));
  }
  return decode_invitation(*bytes);
}

Result<bool> MeetingPlace::claim(uint32_t epoch) {
  Result<int64_t> claims = store_->add(key("claim", epoch), 1);
  if (!claims.ok()) return claims.status();
  return *claims == 1;
}

Status MeetingPlace::open(const Invitation& invitation, const State& before) {
  CIUIC_RETURN_IF_ERROR(store_->set(key("invitation", invitation.epoch), encode(invitation)));
  return store_->add(prefix_ + "/counter", before.open != 0 ? 2 : 1).status();
}

void MeetingPlace::close(uint32_t epoch) {
  // The group has come about, or its error stands: trouble here changes neither.
  [[maybe_unused]] const Result<int64_t> counter = store_->add(prefix_ + "/counter", 1);
  if (auto* erasable = dynamic_cast<Erasable*>(store_)) {
    erasable->erase(key("invitation", epoch));
    erasable->erase(key("claim", epoch));
  } else {
    [[maybe_unused]] const Status emptied = store_->set(key("invitation", epoch), "");
  }
}

}  // namespace ciuic::bootstrap
