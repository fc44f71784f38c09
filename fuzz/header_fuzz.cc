// SPDX-License-Identifier: Apache-2.0
// header_fuzz.cc: a header from the wire is refused, or is one that this library could have sent.

#include <algorithm>
#include <array>

#include "input.h"
#include "wire/header.h"

using namespace ciuic;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < wire::kHeaderBytes) return 0;
  std::array<std::byte, wire::kHeaderBytes> bytes;
  std::copy_n(reinterpret_cast<const std::byte*>(data), bytes.size(), bytes.begin());
  const Result<wire::Header> header = wire::decode(bytes);
  if (!header.ok()) {
    fuzz::require(header.status().code() == StatusCode::kMismatch, "a typed error");
    return 0;
  }
  fuzz::require(header->payload_bytes <= wire::kMaxPayloadBytes, "a bounded payload");
  std::array<std::byte, wire::kHeaderBytes> again;
  wire::encode(*header, again);
  fuzz::require(again == bytes, "one form for each header");
  return 0;
}
