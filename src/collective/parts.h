// SPDX-License-Identifier: Apache-2.0
// parts.h: a large operation as several that do a part of it each, so that their scratch fits.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/engine.h"
#include "plan/layout.h"

namespace ciuic::collective {

// Appends `whole`, or where its plan needs more than `scratch_bytes` of scratch and works in parts,
// one request for each part: as many elements of every block. Alike on all ranks, since what it
// looks at is.
void add_in_parts(engine::Request whole, const plan::Layout& layout, size_t scratch_bytes,
                  std::vector<engine::Request>* requests);

}  // namespace ciuic::collective
