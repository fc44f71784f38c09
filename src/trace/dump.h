// SPDX-License-Identifier: Apache-2.0
// dump.h: a snapshot of a flight recorder as a file that names its rank, host and process.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ciuic/status.h"
#include "trace/format.h"

namespace ciuic::trace {

inline constexpr std::string_view kDumpSuffix = ".ciuic-trace";

// Writes into a copy of the memory when, by whom and of what process it was taken. To be called on
// the process's host, right after the copy was made. `state`: the letter in /proc; 0: not looked
// at.
void stamp_dump(std::string* copy, DumpedBy by, char state, std::optional<int> exit_code);

// "rank3.node7.12345.ciuic-trace", of the snapshot's header and first group.
std::string dump_name(std::span<const std::byte> snapshot);

// Writes the snapshot into the directory, which is made where it is missing; the file is there
// whole or not at all, and replaces an older one. Returns its path. kSystem: the system's reason.
Result<std::string> write_dump(const std::string& directory, std::span<const std::byte> snapshot);

}  // namespace ciuic::trace
