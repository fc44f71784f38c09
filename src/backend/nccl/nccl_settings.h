// SPDX-License-Identifier: Apache-2.0
// nccl_settings.h: NCCL's environment variables: which, and why.
//
// NCCL reads them once in a process. So they are set before it is loaded, where the user has not
// set them; where it is loaded already nothing is changed, and that is reported.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "topology/interfaces.h"
#include "topology/rdma_ports.h"

namespace ciuic::backend {

struct NcclVariable {
  std::string name;
  std::string value;
  std::string why;
  std::string source = "ciuic";  // "environment": the user's, which stays; "not set": too late
};

struct NcclFacts {
  size_t buffer_size = 0;  // that was asked for; 0: NCCL's own
  std::vector<topology::RdmaPort> ports;
  std::vector<topology::Interface> interfaces;
};

struct NcclSettings {
  std::vector<NcclVariable> variables;
  std::vector<std::string> warnings;

  // NcclBackendOptions::traffic_class: what could not be set for the process can be for a group.
  int traffic_class() const;

  // {"settings":[{"name","value","why","source"}, ...],"warnings":["...", ...]} without its braces.
  std::string to_json() const;
};

using Environment = std::function<std::optional<std::string>(const char* name)>;

// Pure. For RoCE v2 the ports, the index of the GID, the traffic class, and the interface by which
// NCCL's processes meet; nothing of these where there is InfiniBand, which NCCL finds by itself.
NcclSettings nccl_settings(const NcclFacts& facts, const Environment& environment);

// What this host is.
NcclFacts nccl_facts(size_t buffer_size);

// Sets the variables of this process, where NCCL is not loaded. The first call decides for the
// process; it is made while no other thread reads the environment.
const NcclSettings& settle_nccl_settings(size_t buffer_size);

}  // namespace ciuic::backend
