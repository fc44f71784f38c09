// SPDX-License-Identifier: Apache-2.0
// port_range.h: the TCP ports that listeners may take.
#pragma once

#include <cstdint>

namespace ciuic {

struct PortRange {
  uint16_t first = 0;  // 0: any port, the system's choice
  uint16_t last = 0;   // inclusive

  bool any() const { return first == 0; }
  int count() const { return last - first + 1; }
  bool operator==(const PortRange&) const = default;
};

}  // namespace ciuic
