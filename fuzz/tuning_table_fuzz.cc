// SPDX-License-Identifier: Apache-2.0
// tuning_table_fuzz.cc: a table from rank 0 or a file is refused, or is the one text of its
// numbers.

#include "input.h"
#include "tuner/tuning_table.h"

using namespace ciuic;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<tuner::TuningTable> table = tuner::TuningTable::parse(text);
  fuzz::require_text(table.status());
  if (!table.ok()) return 0;
  const Result<tuner::TuningTable> again = tuner::TuningTable::parse(table->serialize());
  fuzz::require(again.ok() && *again == *table, "a table reads the same once written");
  fuzz::require(again->hash() == table->hash(), "a table has one hash");
  return 0;
}
