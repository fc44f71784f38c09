// SPDX-License-Identifier: Apache-2.0
// subgroup.cc: some ranks of a group make a group of their own. They join as ever; the place where
// they meet is their communicator: the new rank 0 sends the others what a store would have held.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>

#include "backend/mpi/mpi_backend.h"
#include "base/clock.h"
#include "base/hash.h"
#include "bootstrap/fenced_store.h"
#include "communicator/create.h"

namespace ciuic {

namespace {

// Tags above those of users. Members of different groups may make theirs at the same time.
constexpr int kFirstTag = kMaxTag + 1;
constexpr uint32_t kTags = 1 << 20;

constexpr int64_t kMostBytes = 1 << 20;
constexpr size_t kMostNameBytes = 64;

uint32_t hash_of(std::span<const int> ranks) {
  const uint64_t hash = fnv1a_64(ranks);
  return static_cast<uint32_t>(hash ^ hash >> 32);
}

// "0-3,6".
std::string text_of(std::span<const int> ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? std::to_string(ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string name_of(const std::string& parent, std::span<const int> ranks) {
  std::string members = text_of(ranks);
  if (members.size() > kMostNameBytes) {
    members = fmt::format("{} ranks, {:08x}", ranks.size(), hash_of(ranks));
  }
  return parent + "/" + members;
}

class ParentFence final : public Store, public bootstrap::FencedStore {
 public:
  ParentFence(backend::Backend* parent, std::span<const int> ranks, int rank)
      : parent_(parent),
        ranks_(ranks.begin(), ranks.end()),
        rank_(rank),
        tag_(kFirstTag + static_cast<int>(hash_of(ranks) % kTags)) {}

  Status set(const std::string&, const std::string&) override { return no_keys(); }
  Result<std::string> get(const std::string&, int64_t) override { return no_keys(); }
  Result<int64_t> add(const std::string&, int64_t) override { return no_keys(); }
  std::string name() const override { return "parent group"; }
  bool is_private() const override { return true; }

  Result<std::string> broadcast(const std::string* value, TimeNs deadline) override {
    ++broadcasts_;
    return rank_ == 0 ? give(*value, deadline) : take(deadline);
  }
  uint32_t count() const override { return broadcasts_; }
  Status look() override { return parent_->status(); }
  int former_rank(int rank) const override {
    const auto place = static_cast<size_t>(rank);
    return place < ranks_.size() ? ranks_[place] : -1;
  }

 private:
  static Status no_keys() {
    return {StatusCode::kUnsupported, "a group's meeting point for a part of it holds no keys"};
  }

  Status run(std::span<const Call> calls, TimeNs deadline) {
    const OperationOptions options{.timeout_ms = std::max<int64_t>(1, left_ms(deadline, now_ns())),
                                   .wait_follows = true};
    Result<Work> work = parent_->submit(calls, options);
    return work.ok() ? work->wait() : work.status();
  }

  Result<std::string> give(const std::string& value, TimeNs deadline) {
    const auto bytes = static_cast<int64_t>(value.size());
    std::vector<Call> calls;
    for (size_t i = 1; i < ranks_.size(); ++i) {
      calls.push_back(Call::send({&bytes, 1, DataType::kInt64, {}}, ranks_[i], tag_));
      calls.push_back(Call::send({value.data(), bytes, DataType::kUInt8, {}}, ranks_[i], tag_));
    }
    CIUIC_RETURN_IF_ERROR(run(calls, deadline));
    return value;
  }

  Result<std::string> take(TimeNs deadline) {
    int64_t bytes = 0;
    const Call size = Call::recv({&bytes, 1, DataType::kInt64, {}}, ranks_[0], tag_);
    CIUIC_RETURN_IF_ERROR(run({&size, 1}, deadline));
    if (bytes < 0 || bytes > kMostBytes) {
      return Status(StatusCode::kMismatch, "the ranks do not make the same group");
    }
    std::string value(static_cast<size_t>(bytes), '\0');
    const Call whole = Call::recv({value.data(), bytes, DataType::kUInt8, {}}, ranks_[0], tag_);
    CIUIC_RETURN_IF_ERROR(run({&whole, 1}, deadline));
    return value;
  }

  backend::Backend* parent_;
  std::vector<int> ranks_;  // of the parent, by new rank
  int rank_;
  int tag_;
  uint32_t broadcasts_ = 0;
};

Status check_members(std::span<const int> ranks, int rank, int size) {
  std::set<int> seen;
  for (const int member : ranks) {
    if (member < 0 || member >= size) {
      return {StatusCode::kInvalidArgument,
              fmt::format("subgroup: {} is not a rank of this group (0 to {})", member, size - 1)};
    }
    if (!seen.insert(member).second) {
      return {StatusCode::kInvalidArgument,
              fmt::format("subgroup: rank {} is there twice", member)};
    }
  }
  if (seen.count(rank) > 0) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("subgroup: this is rank {}, which is not among the ranks {}; only they call "
                      "it",
                      rank, text_of(ranks))};
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::subgroup(std::span<const int> ranks,
                                                             int64_t timeout_ms) {
  CIUIC_RETURN_IF_ERROR(state_->check_usable("subgroup"));
  CIUIC_RETURN_IF_ERROR(check_members(ranks, state_->rank, state_->size));
  Result<Config> config = Config::from_environment();
  if (!config.ok()) return config.status();
  CommunicatorOptions options = state_->options;
  options.rank =
      static_cast<int>(std::find(ranks.begin(), ranks.end(), state_->rank) - ranks.begin());
  options.size = static_cast<int>(ranks.size());
  options.group_name = name_of(options.group_name, ranks);
  options.store.reset();
  if (options.size > 1) {
    options.store = std::make_shared<ParentFence>(state_->backend.get(), ranks, options.rank);
  }
  MpiJoin mpi;
  if (options.backend == "mpi") {
    backend::MpiBackend* parent = state_->mpi;
    mpi.process = parent->process();
    mpi.make = [parent, ranks] { return parent->part(ranks); };
  }
  Result<std::unique_ptr<State>> state =
      make_state(options, *config, timeout_ms >= 0 ? timeout_ms : options.timeout_ms, mpi);
  if (!state.ok()) return state.status();
  (*state)->options.store = nullptr;  // of no further use
  return std::unique_ptr<Communicator>(new Communicator(std::move(*state)));
}

Result<std::unique_ptr<Communicator>> Communicator::split(int color, int key, int64_t timeout_ms) {
  if (color < kNoColor) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("split: color {} is negative; it is 0 or more, or kNoColor", color));
  }
  const auto size = static_cast<size_t>(state_->size);
  const TimeNs deadline =
      deadline_after(now_ns(), timeout_ms >= 0 ? timeout_ms : state_->options.timeout_ms);
  const int32_t own[2] = {color, key};
  std::vector<int32_t> all(2 * size);
  Result<Work> work =
      all_gather({own, 2, DataType::kInt32, {}},
                 {all.data(), static_cast<int64_t>(all.size()), DataType::kInt32, {}},
                 {.timeout_ms = timeout_ms, .wait_follows = true, .of_library = true});
  if (!work.ok()) return work.status();
  CIUIC_RETURN_IF_ERROR(work->wait());
  if (color == kNoColor) return std::unique_ptr<Communicator>();
  std::vector<int> members;
  for (size_t rank = 0; rank < size; ++rank) {
    if (all[2 * rank] == color) members.push_back(static_cast<int>(rank));
  }
  std::sort(members.begin(), members.end(), [&](int a, int b) {
    return std::tuple(all[2 * static_cast<size_t>(a) + 1], a) <
           std::tuple(all[2 * static_cast<size_t>(b) + 1], b);
  });
  return subgroup(members, std::max<int64_t>(1, left_ms(deadline, now_ns())));
}

}  // namespace ciuic
