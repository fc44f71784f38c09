// SPDX-License-Identifier: Apache-2.0
// repeats.h: a call that differs from the last one in its memory alone needs no checks and no
// choice.
#pragma once

#include "ciuic/call.h"
#include "engine/engine.h"

namespace ciuic::collective {

// One thread at a time. Of one group, whose chooser chooses alike for calls that are alike.
class Repeats {
 public:
  // The call's request where it repeats the one that is remembered, else null.
  const engine::Request* find(const Call& call);

  // `request` is what the call became, whole.
  void remember(const Call& call, const engine::Request& request);

 private:
  enum class Place { kElsewhere, kApart, kSame };

  static Place place_of(const Call& call);
  bool repeats(const Call& call) const;

  Operation operation_{};
  ReduceOp op_{};
  int root_ = -1;
  ConstBuffer input_;  // but for their data
  ConstBuffer output_;
  Place place_ = Place::kElsewhere;  // nothing is remembered
  engine::Request request_;
};

}  // namespace ciuic::collective
