// SPDX-License-Identifier: Apache-2.0
// address_fuzz.cc: addresses as users, stores and cards write them.

#include "drivers/posix/address.h"
#include "input.h"

using namespace ciuic;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<posix::Address> split = posix::split_host_port(text);
  if (split.ok()) {
    fuzz::require(!split->text.empty(), "an address has a host");
    // As the address of a card is used, which nobody has looked at before.
    [[maybe_unused]] const auto socket_address = posix::to_socket_address(*split);
  }
  const Result<posix::Address> address = posix::Address::parse(text);
  fuzz::require_text(address.status());
  if (!address.ok()) return 0;
  const Result<posix::Address> again = posix::Address::parse(address->format());
  fuzz::require(again.ok() && *again == *address, "an address reads the same once written");
  fuzz::require(!(address->is_loopback() && address->is_any()), "loopback is not any address");
  return 0;
}
