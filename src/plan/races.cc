// SPDX-License-Identifier: Apache-2.0
// races.cc: whether the dependencies of a plan order all steps that must not run at once.

#include "plan/races.h"

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "plan/validate.h"

namespace ciuic::plan {

namespace {

// For each step the earlier ones that it comes after, one bit each.
class Order {
 public:
  explicit Order(size_t steps) : words_((steps + 63) / 64), bits_(steps * words_, 0) {}
  bool has(int step, int earlier) const {
    return (bits_[step * words_ + earlier / 64] >> (earlier % 64) & 1) != 0;
  }
  void add(int step, int earlier) {
    bits_[step * words_ + earlier / 64] |= uint64_t{1} << (earlier % 64);
  }
  void add_all(int step, const Order& from, int earlier) {
    for (size_t word = 0; word < words_; ++word) {
      bits_[step * words_ + word] |= from.bits_[earlier * words_ + word];
    }
  }

 private:
  size_t words_;
  std::vector<uint64_t> bits_;
};

struct Access {
  int step = 0;
  bool writes = false;
  BlockRange range;  // in place: input blocks as output blocks
};

class RaceCheck {
 public:
  RaceCheck(const Plan& plan, int rank)
      : plan_(plan), rank_(rank), chunkwise_(plan.steps.size()), whole_(plan.steps.size()) {}

  Status run() {
    for (int number = 0; number < static_cast<int>(plan_.steps.size()); ++number) {
      CIUIC_RETURN_IF_ERROR(add_order(number));
      const Step& step = plan_.steps[number];
      if (step.kind != StepKind::kReceive) CIUIC_RETURN_IF_ERROR(touch(number, false, step.source));
      if (step.kind != StepKind::kSend) CIUIC_RETURN_IF_ERROR(touch(number, true, step.target));
    }
    return {};
  }

 private:
  Status wrong(int number, const std::string& what) const {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("rank {}, {}: {}", rank_, step_text(plan_, number), what));
  }

  // chunkwise_: chunk k of the one comes after chunk k of the other; whole_: after all of it. A way
  // from step to step is whole if any dependency on it is, since chunkwise ones have equal chunks.
  Status add_order(int number) {
    for (const Dependency& dependency : plan_.steps[number].after) {
      const int earlier = dependency.step;
      if (earlier < 0 || earlier >= number) {
        return wrong(number, fmt::format("comes after step {}, which is not earlier", earlier));
      }
      chunkwise_.add(number, earlier);
      chunkwise_.add_all(number, chunkwise_, earlier);
      if (dependency.whole) {
        whole_.add(number, earlier);
        whole_.add_all(number, chunkwise_, earlier);
      } else {
        whole_.add_all(number, whole_, earlier);
      }
    }
    return {};
  }

  Status touch(int number, bool writes, BlockRange range) {
    range = plan_.in_place(range);
    for (int block = range.first; block < range.first + range.count; ++block) {
      std::vector<Access>& touched = touched_[{range.space, block}];
      for (const Access& other : touched) {
        if (other.step == number || (!writes && !other.writes)) continue;
        const bool same = other.range == range;
        const Order& needed = same ? chunkwise_ : whole_;
        if (needed.has(number, other.step)) continue;
        return wrong(number, fmt::format("races with {} for {} {}{}", step_text(plan_, other.step),
                                         name_of(range.space), block,
                                         same ? "" : " (it must come after all of it)"));
      }
      touched.push_back({number, writes, range});
    }
    return {};
  }

  const Plan& plan_;
  const int rank_;
  Order chunkwise_;
  Order whole_;
  std::map<std::pair<Space, int>, std::vector<Access>> touched_;
};

}  // namespace

Status check_races(const Plan& plan, int rank) { return RaceCheck(plan, rank).run(); }

}  // namespace ciuic::plan
