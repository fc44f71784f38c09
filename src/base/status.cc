// SPDX-License-Identifier: Apache-2.0
// status.cc: names of status codes.

#include "ciuic/status.h"

namespace ciuic {

const char* name_of(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidArgument: return "invalid_argument";
    case StatusCode::kUnsupported: return "unsupported";
    case StatusCode::kMismatch: return "mismatch";
    case StatusCode::kTimeout: return "timeout";
    case StatusCode::kPeerLost: return "peer_lost";
    case StatusCode::kAborted: return "aborted";
    case StatusCode::kClosed: return "closed";
    case StatusCode::kResource: return "resource";
    case StatusCode::kPermission: return "permission";
    case StatusCode::kUnavailable: return "unavailable";
    case StatusCode::kSystem: return "system";
  }
  return "unknown";
}

}  // namespace ciuic
