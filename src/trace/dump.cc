// SPDX-License-Identifier: Apache-2.0
// dump.cc: written beside its place, then moved there.

#include "trace/dump.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "trace/parse.h"
#include "trace/ticks.h"

namespace ciuic::trace {

static Status cannot(const char* what, const std::string& path, const std::string& why) {
  return {StatusCode::kSystem, fmt::format("cannot {} {}: {}", what, path, why)};
}

void stamp_dump(std::string* copy, DumpedBy by, char state, std::optional<int> exit_code) {
  if (copy->size() < kHeaderBytes) return;
  Header header;
  std::memcpy(&header, copy->data(), sizeof(header));
  const Moment moment = this_moment(header.clock);
  const Dump dump{.ticks = moment.ticks,
                  .monotonic_ns = moment.monotonic_ns,
                  .realtime_ns = moment.realtime_ns,
                  .by = static_cast<uint8_t>(by),
                  .state = static_cast<uint8_t>(state),
                  .has_ended = exit_code.has_value(),
                  .exit_code = exit_code.value_or(0)};
  std::memcpy(copy->data() + offsetof(Header, dump), &dump, sizeof(dump));
}

std::string dump_name(std::span<const std::byte> snapshot) {
  const Result<Trace> trace = parse(snapshot);
  if (!trace.ok()) return fmt::format("unreadable{}", kDumpSuffix);
  int rank = trace->process.launch_rank;
  if (rank < 0 && !trace->groups.empty()) rank = trace->groups.front().rank;
  std::string host = trace->process.host;
  for (char& letter : host) {
    if (letter == '/' || letter == ' ') letter = '_';
  }
  return fmt::format("rank{}.{}.{}{}", rank < 0 ? "-" : std::to_string(rank), host,
                     trace->process.pid, kDumpSuffix);
}

Result<std::string> write_dump(const std::string& directory, std::span<const std::byte> snapshot) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return cannot("make", directory, error.message());
  const std::string path = directory + "/" + dump_name(snapshot);
  const std::string beside = path + ".part";
  std::FILE* file = std::fopen(beside.c_str(), "wbe");
  if (file == nullptr) return cannot("write", beside, std::strerror(errno));
  const bool written = std::fwrite(snapshot.data(), 1, snapshot.size(), file) == snapshot.size();
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed || std::rename(beside.c_str(), path.c_str()) != 0) {
    const Status status = cannot("write", path, std::strerror(errno));
    std::remove(beside.c_str());
    return status;
  }
  return path;
}

}  // namespace ciuic::trace
