// SPDX-License-Identifier: Apache-2.0
// announcement.h: what a kAnnounce says of its sender's call. The fingerprint alone tells whether
// two calls are the same; the rest is for the message that says how they differ.
#pragma once

#include <optional>
#include <string_view>

#include "engine/cause.h"
#include "plan/registry.h"
#include "wire/header.h"

namespace ciuic::engine {

void describe(const CallRecord& call, wire::Header* header);

// Also of an uneven form, "all_gather_v".
std::optional<plan::Operation> operation_called(std::string_view name);

// Believes nothing: `operation` is null where the header describes no call that there is.
CallRecord described(const wire::Header& header);

}  // namespace ciuic::engine
