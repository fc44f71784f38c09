// SPDX-License-Identifier: Apache-2.0
// version.h: the version of the headers, and that of the library that was loaded.
#pragma once

#include "ciuic/export.h"

#define CIUIC_VERSION "0.1.0"
#define CIUIC_ABI 1  // raised with every change to a public class's layout

namespace ciuic {

CIUIC_EXPORT const char* version();  // of the loaded library
CIUIC_EXPORT int abi();              // compare with CIUIC_ABI before anything else is called

}  // namespace ciuic
