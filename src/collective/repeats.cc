// SPDX-License-Identifier: Apache-2.0
// repeats.cc: when two calls are alike.

#include "collective/repeats.h"

namespace ciuic::collective {

// How input and output lie, for calls with both; what is rarer is checked each time.
Repeats::Place Repeats::place_of(const Call& call) {
  const auto in = reinterpret_cast<uintptr_t>(call.input.data);
  const auto out = reinterpret_cast<uintptr_t>(call.output.data);
  if (in == 0 || out == 0) return Place::kElsewhere;
  if (in == out) return Place::kSame;
  const bool apart = in + call.input.bytes() <= out || out + call.output.bytes() <= in;
  return apart ? Place::kApart : Place::kElsewhere;
}

static bool alike(const ConstBuffer& a, const ConstBuffer& b) {
  return a.count == b.count && a.dtype == b.dtype && a.device == b.device;
}

bool Repeats::repeats(const Call& call) const {
  return place_ != Place::kElsewhere && call.operation == operation_ && call.op == op_ &&
         call.root == root_ && !call.uneven && call.algorithm.empty() &&
         alike(call.input, input_) && alike(call.output, output_) && place_of(call) == place_;
}

const engine::Request* Repeats::find(const Call& call) {
  if (!repeats(call)) return nullptr;
  request_.input = static_cast<const std::byte*>(call.input.data);
  request_.output = static_cast<std::byte*>(call.output.data);
  return &request_;
}

void Repeats::remember(const Call& call, const engine::Request& request) {
  const bool has_plan = request.kind == engine::RequestKind::kCollective;
  if (!has_plan || call.uneven || !call.algorithm.empty()) return;
  operation_ = call.operation;
  op_ = call.op;
  root_ = call.root;
  input_ = call.input;
  output_ = call.output;
  place_ = place_of(call);
  request_ = request;
}

}  // namespace ciuic::collective
