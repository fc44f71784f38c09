// SPDX-License-Identifier: Apache-2.0
// port_holder.h: which process listens at a TCP port of this host.
#pragma once

#include <cstdint>
#include <string>

namespace ciuic::posix {

// "process 4711 (python3)", or empty where /proc does not tell: another user's process, another
// container's, or a socket that is bound without listening.
std::string port_holder(uint16_t port);

}  // namespace ciuic::posix
