// SPDX-License-Identifier: Apache-2.0
// cause.cc: a call in words.

#include "engine/cause.h"

#include <fmt/format.h>

#include <string_view>

namespace ciuic::engine {

std::string CallRecord::text() const {
  if (operation == nullptr) return "";
  if (std::string_view(operation) == "barrier") return fmt::format("{}()", operation);
  std::string text =
      fmt::format("{}({}, {} element{}", operation, name_of(dtype), count, count == 1 ? "" : "s");
  if (reduces) text += fmt::format(", {}", name_of(op));
  if (root >= 0) text += fmt::format(", root {}", root);
  return text + ")";
}

}  // namespace ciuic::engine
