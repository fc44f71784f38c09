// SPDX-License-Identifier: Apache-2.0
// nccl_settings.cc: what RoCE wants, and what the user says.

#include "backend/nccl/nccl_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "base/config.h"
#include "base/json_text.h"
#include "base/log.h"
#include "drivers/nccl/nccl.h"

namespace ciuic::backend {

// DSCP 26, by which lossless classes of RoCE networks are told, and "can say that it is congested".
static constexpr int kTrafficClass = 26 << 2 | 2;

namespace {

class Choice {
 public:
  Choice(const NcclFacts& facts, const Environment& environment)
      : facts_(facts), environment_(environment) {}

  NcclSettings make();

 private:
  void set(const char* name, const std::string& value, const std::string& why);
  void pick_ports();
  void set_roce();
  void warn_of_disable();

  const NcclFacts& facts_;
  const Environment& environment_;
  std::vector<topology::RocePick> picks_;
  NcclSettings made_;
};

void Choice::set(const char* name, const std::string& value, const std::string& why) {
  const std::optional<std::string> own = environment_(name);
  if (own) {
    made_.variables.push_back({name, *own, "the environment has it", "environment"});
  } else {
    made_.variables.push_back({name, value, why});
  }
}

void Choice::pick_ports() {
  for (const topology::RdmaPort& port : facts_.ports) {
    if (!port.ethernet) continue;
    std::string why_not;
    auto picked = topology::pick_roce(port, facts_.interfaces, &why_not);
    if (picked) {
      picks_.push_back(std::move(*picked));
    } else if (port.active) {
      made_.warnings.push_back(
          fmt::format("RoCE port {}:{} cannot be used: {}", port.device, port.port, why_not));
    }
  }
}

void Choice::set_roce() {
  std::string ports = "=";  // of these names exactly
  std::string used;
  std::set<int> indices;
  for (const topology::RocePick& pick : picks_) {
    ports += fmt::format("{}{}:{}", ports.size() > 1 ? "," : "", pick.device, pick.port);
    used += fmt::format("{}{} ({}, {})", used.empty() ? "" : ", ", pick.device, pick.gid.interface,
                        pick.address);
    indices.insert(pick.gid.index);
  }
  set("NCCL_IB_DISABLE", "0", "RoCE v2 is up: " + used);
  set("NCCL_IB_HCA", ports, "the ports with a RoCE v2 address that other hosts can reach");
  if (indices.size() == 1) {
    const topology::RocePick& first = picks_.front();
    set("NCCL_IB_GID_INDEX", std::to_string(first.gid.index),
        fmt::format("RoCE v2 with the address {}, on {}", first.address, first.gid.interface));
  } else {
    made_.warnings.emplace_back(
        "NCCL_IB_GID_INDEX is left to NCCL: the right index differs among the RoCE ports, and NCCL "
        "takes one for all; 2.21 and later find each by themselves");
  }
  set("NCCL_IB_TC", std::to_string(kTrafficClass),
      "DSCP 26 and ECN, as lossless classes mostly are; set it where your switches have another");
  set("NCCL_SOCKET_IFNAME", "=" + picks_.front().gid.interface,
      "NCCL's processes meet over the interface of the first RoCE port");
}

// It was told to "force RoCE", and does the contrary.
void Choice::warn_of_disable() {
  const std::optional<std::string> own = environment_("NCCL_IB_DISABLE");
  if (!own || *own == "0" || picks_.empty()) return;
  made_.warnings.push_back(
      fmt::format("NCCL_IB_DISABLE={} is set, while RoCE v2 is up on {} ({}): NCCL then sends by "
                  "TCP. Unset it, or set it to 0",
                  *own, picks_.front().device, picks_.front().gid.interface));
}

NcclSettings Choice::make() {
  if (facts_.buffer_size > 0) {
    set("NCCL_BUFFSIZE", std::to_string(facts_.buffer_size), "buffer_size was given");
  }
  const bool has_infiniband =
      std::any_of(facts_.ports.begin(), facts_.ports.end(),
                  [](const topology::RdmaPort& port) { return port.active && !port.ethernet; });
  if (!has_infiniband) pick_ports();
  if (!picks_.empty()) set_roce();
  warn_of_disable();
  return std::move(made_);
}

}  // namespace

NcclSettings nccl_settings(const NcclFacts& facts, const Environment& environment) {
  return Choice(facts, environment).make();
}

NcclFacts nccl_facts(size_t buffer_size) {
  NcclFacts facts{
      .buffer_size = buffer_size, .ports = topology::list_rdma_ports(""), .interfaces = {}};
  Result<std::vector<topology::Interface>> interfaces = topology::list_interfaces();
  if (interfaces.ok()) facts.interfaces = std::move(*interfaces);
  return facts;
}

static NcclSettings settle(size_t buffer_size) {
  NcclSettings settings = nccl_settings(nccl_facts(buffer_size), environment_variable);
  const bool is_late = nccl::is_loaded();
  std::string left_out;
  for (NcclVariable& variable : settings.variables) {
    if (variable.source != "ciuic") continue;
    if (!is_late && ::setenv(variable.name.c_str(), variable.value.c_str(), /*replace=*/0) == 0) {
      continue;
    }
    variable.source = "not set";
    left_out += fmt::format("{}{}={}", left_out.empty() ? "" : " ", variable.name, variable.value);
  }
  if (!left_out.empty()) {
    settings.warnings.push_back(fmt::format(
        "NCCL was loaded before this group was made, and its settings are as they were. To have "
        "{}, start by `ciuic run`, set them yourself, or import ciuic first",
        left_out));
  }
  for (const std::string& warning : settings.warnings) log_warn("backend nccl: {}", warning);
  return settings;
}

const NcclSettings& settle_nccl_settings(size_t buffer_size) {
  static const auto* const settled = new NcclSettings(settle(buffer_size));
  return *settled;
}

int NcclSettings::traffic_class() const {
  const bool is_late = std::any_of(variables.begin(), variables.end(), [](const auto& each) {
    return each.name == "NCCL_IB_TC" && each.source == "not set";
  });
  return is_late ? kTrafficClass : nccl::kUndefined;
}

std::string NcclSettings::to_json() const {
  std::string text = "\"settings\":[";
  for (const NcclVariable& variable : variables) {
    if (text.back() != '[') text += ',';
    text += fmt::format("{{\"name\":{},\"value\":{},\"why\":{},\"source\":{}}}",
                        json_quoted(variable.name), json_quoted(variable.value),
                        json_quoted(variable.why), json_quoted(variable.source));
  }
  text += "],\"warnings\":[";
  for (const std::string& warning : warnings) {
    if (text.back() != '[') text += ',';
    text += json_quoted(warning);
  }
  return text + "]";
}

}  // namespace ciuic::backend
