// SPDX-License-Identifier: Apache-2.0
// version.cc: the version of the library itself.

#include "ciuic/version.h"

namespace ciuic {

const char* version() { return CIUIC_VERSION; }
int abi() { return CIUIC_ABI; }

}  // namespace ciuic
