// SPDX-License-Identifier: Apache-2.0
// trace_py.cc: the flight recorder's memory as Python sees it: how large it is, what it says.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <span>
#include <string>

#include "base/config.h"
#include "module.h"
#include "trace/dump.h"
#include "trace/parse.h"

namespace ciuic::python {
namespace {

std::span<const std::byte> bytes_of(const nb::bytes& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.c_str()), bytes.size()};
}

// A dump may have any bytes where a name should be.
nb::object text(const std::string& bytes) {
  return nb::steal(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

template <typename T>
nb::object or_none(const std::optional<T>& value) {
  return value ? nb::cast(*value) : nb::none();
}

nb::dict process(const trace::Process& process) {
  nb::dict result;
  result["pid"] = process.pid;
  result["start_ticks"] = process.start_ticks;
  result["launch_rank"] = process.launch_rank;
  result["launch_size"] = process.launch_size;
  result["boot_id"] = text(process.boot_id);
  result["host"] = text(process.host);
  result["library"] = text(process.library);
  result["ring_events"] = process.ring_events;
  result["written_events"] = process.written_events;
  result["torn_events"] = process.torn_events;
  result["groups_lost"] = process.groups_lost;
  result["realtime_offset_ns"] = process.realtime_offset_ns;
  result["dumped_ns"] = or_none(process.dumped_ns);
  const trace::Dump& dump = process.dump;
  const bool is_letter = dump.state > ' ' && dump.state < 0x7f;
  result["state"] = text(is_letter ? std::string(1, static_cast<char>(dump.state)) : "");
  result["exit_code"] = dump.has_ended != 0 ? nb::cast(dump.exit_code) : nb::none();
  return result;
}

nb::dict group(const trace::Group& group) {
  nb::dict result;
  result["number"] = group.number;
  result["id"] = group.id;
  result["epoch"] = group.epoch;
  result["job"] = group.job;
  result["rank"] = group.rank;
  result["size"] = group.size;
  result["name"] = text(group.name);
  result["joined_ns"] = group.joined_ns;
  result["failed_ns"] = or_none(group.failed_ns);
  result["closed_ns"] = or_none(group.closed_ns);
  result["status"] = name_of(group.status);
  result["text"] = text(group.text);
  return result;
}

nb::dict operation(const trace::Operation& operation) {
  nb::dict result;
  result["group"] = operation.group;
  result["sequence"] = operation.sequence;
  result["is_message"] = operation.is_message;
  result["is_known"] = operation.is_known;
  result["name"] = text(operation.name);
  result["algorithm"] = text(operation.algorithm);
  result["dtype"] = text(operation.dtype);
  result["op"] = text(operation.op);
  result["root"] = operation.root;
  result["count"] = operation.count;
  result["bytes"] = operation.bytes;
  result["fingerprint"] = operation.fingerprint;
  result["called_ns"] = or_none(operation.called_ns);
  result["started_ns"] = or_none(operation.started_ns);
  result["ended_ns"] = or_none(operation.ended_ns);
  result["has_ended"] = operation.has_ended;
  result["status"] = name_of(operation.status);
  return result;
}

nb::dict parse(const nb::bytes& bytes) {
  const Result<trace::Trace> parsed = trace::parse(bytes_of(bytes));
  raise_unless_ok(parsed.status());
  nb::list groups;
  for (const trace::Group& each : parsed->groups) groups.append(group(each));
  nb::list operations;
  for (const trace::Operation& each : parsed->operations) operations.append(operation(each));
  nb::dict result;
  result["process"] = process(parsed->process);
  result["groups"] = groups;
  result["operations"] = operations;
  return result;
}

nb::bytes stamp(const nb::bytes& bytes, bool by_launcher, const std::string& state,
                std::optional<int> exit_code) {
  std::string copy(bytes.c_str(), bytes.size());
  trace::stamp_dump(&copy, by_launcher ? trace::DumpedBy::kLauncher : trace::DumpedBy::kReader,
                    state.empty() ? '\0' : state[0], exit_code);
  return nb::bytes(copy.data(), copy.size());
}

size_t memory_bytes() {
  const Result<Config> config = Config::from_environment();
  raise_unless_ok(config.status());
  if (config->trace_events == 0) return 0;
  return trace::bytes_for(trace::events_for(static_cast<uint64_t>(config->trace_events)));
}

}  // namespace

void bind_trace(nb::module_& module) {
  module.def("parse_trace", &parse, nb::arg("data"), "What a dump, or a copy of the memory, says.");
  module.def("stamp_trace", &stamp, nb::arg("data"), nb::arg("by_launcher"), nb::arg("state"),
             nb::arg("exit_code").none(), "The copy, with when and of what process it was taken.");
  module.def(
      "trace_dump_name", [](const nb::bytes& bytes) { return trace::dump_name(bytes_of(bytes)); },
      nb::arg("data"));
  module.def("trace_memory_bytes", &memory_bytes, "Of a process; 0: there is no flight recorder.");
}

}  // namespace ciuic::python
