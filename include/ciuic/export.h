// SPDX-License-Identifier: Apache-2.0
// export.h: what is visible outside the shared library.
#pragma once

#define CIUIC_EXPORT __attribute__((visibility("default")))
