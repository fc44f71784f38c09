// SPDX-License-Identifier: Apache-2.0
// hash.h: FNV-1a (Fowler, Noll, Vo, 1991): for what ranks, or a process and its readers, must find
// alike. Against nobody who wishes otherwise.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace ciuic {

constexpr uint32_t fnv1a_32(std::string_view text) {
  uint32_t hash = 2166136261u;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 16777619u;
  return hash;
}

// Of integers, each as a whole; of a text its bytes.
template <typename Range>
constexpr uint64_t fnv1a_64(const Range& integers) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const auto integer : integers) {
    using Unsigned = std::make_unsigned_t<std::remove_cvref_t<decltype(integer)>>;
    hash = (hash ^ static_cast<Unsigned>(integer)) * 0x100000001b3u;
  }
  return hash;
}

}  // namespace ciuic
