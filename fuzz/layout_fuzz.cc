// SPDX-License-Identifier: Apache-2.0
// layout_fuzz.cc: layouts as users write them.

#include "input.h"
#include "plan/layout.h"

using namespace ciuic;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<plan::Layout> layout = plan::Layout::parse(text);
  fuzz::require_text(layout.status());
  if (!layout.ok()) return 0;
  fuzz::require(layout->size() >= 1 && layout->hosts() >= 1, "a layout has ranks");
  const Result<plan::Layout> again = plan::Layout::parse(layout->text());
  fuzz::require(again.ok() && again->text() == layout->text(), "a layout reads the same");
  return 0;
}
