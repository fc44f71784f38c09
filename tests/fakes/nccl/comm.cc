// SPDX-License-Identifier: Apache-2.0
// comm.cc: how ranks meet, and the order of a communicator's work.

#include "nccl/comm.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "nccl/cuda.h"

namespace ciuic::fake_nccl {

static constexpr unsigned kMagic = 0xcafebeef;
static constexpr int kUndefinedVersion = 21700;  // the first that knows kUndefined

static std::atomic<const char*> last_text{""};

int fail(int code, const std::string& text) {
  // Kept for ever, as callers hold the pointer.
  static std::mutex* const mutex = new std::mutex;
  static auto* const texts = new std::set<std::string>;
  const std::lock_guard lock(*mutex);
  last_text.store(texts->insert(text).first->c_str());
  return code;
}

const char* last_error() { return last_text.load(); }

int version() {
  static const int number = [] {
    const char* text = std::getenv("FAKE_NCCL_VERSION");
    return text == nullptr ? 22705 : std::atoi(text);
  }();
  return number;
}

int read_config(const Config* given, bool* is_blocking) {
  *is_blocking = true;
  if (given == nullptr) return kSuccess;
  Config config = {.size = 0,
                   .magic = 0,
                   .version = 0,
                   .blocking = kUndefined,
                   .cga_cluster_size = kUndefined,
                   .min_ctas = kUndefined,
                   .max_ctas = kUndefined,
                   .net_name = nullptr,
                   .split_share = kUndefined,
                   .traffic_class = kUndefined};
  std::memcpy(&config, given, std::min(given->size, sizeof config));
  if (config.magic != kMagic) {
    return fail(kInvalidArgument,
                "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
  }
  const bool may_be_undefined = version() >= kUndefinedVersion;
  const bool is_undefined = config.blocking == kUndefined && may_be_undefined;
  if (!is_undefined && config.blocking != 0 && config.blocking != 1) {
    return fail(kInvalidArgument,
                "Invalid config blocking attribute value " + std::to_string(config.blocking));
  }
  const auto is_bad = [](int value) { return value != kUndefined && value <= 0; };
  if (may_be_undefined &&
      (is_bad(config.min_ctas) || is_bad(config.max_ctas) || config.min_ctas > config.max_ctas)) {
    return fail(kInvalidArgument, "Invalid config min/max channels attribute value " +
                                      std::to_string(config.min_ctas) + "/" +
                                      std::to_string(config.max_ctas));
  }
  *is_blocking = config.blocking != 0;
  return kSuccess;
}

// ---- handles ----

static std::mutex& handles_mutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}

static std::map<const void*, std::shared_ptr<Comm>>& handles() {
  static auto* const all = new std::map<const void*, std::shared_ptr<Comm>>;
  return *all;
}

std::shared_ptr<Comm> Comm::find(const void* handle) {
  const std::lock_guard lock(handles_mutex());
  const auto found = handles().find(handle);
  return found == handles().end() ? nullptr : found->second;
}

void* Comm::keep(std::shared_ptr<Comm> comm) {
  const std::lock_guard lock(handles_mutex());
  void* handle = comm.get();
  handles()[handle] = std::move(comm);
  return handle;
}

void Comm::forget(const void* handle) {
  const std::lock_guard lock(handles_mutex());
  handles().erase(handle);
}

Comm::~Comm() {
  if (background_.joinable()) background_.join();
}

// ---- how ranks meet ----

int Comm::wait_for(const std::function<bool()>& condition) const {
  while (true) {
    const uint32_t seen = region_->shared().seats[rank].bell.load();
    if (condition()) return kSuccess;
    if (is_aborted()) return fail(kInvalidUsage, "the communicator was aborted");
    region_->sleep(rank, seen);
  }
}

int Comm::join(const std::string& name) {
  const std::optional<int64_t> bus = bus_of(device);
  if (!bus.has_value()) return fail(kUnhandledCudaError, "Cuda failure " + cuda_error());
  auto region = Region::open(name);
  if (region == nullptr) {
    return fail(kSystemError, "the process that made the unique id cannot be reached: " + name);
  }
  Shared& shared = region->shared();
  int known = 0;
  if (!shared.size.compare_exchange_strong(known, size) && known != size) {
    return fail(kInvalidUsage, "the ranks differ in how many there are: " + std::to_string(known) +
                                   " and " + std::to_string(size));
  }
  if (!region->sit(rank)) {
    return fail(kInvalidUsage, "Duplicate rank " + std::to_string(rank) + " found in comm");
  }
  region_ = std::move(region);
  shared.seats[rank].bus = *bus;
  shared.seats[rank].is_ready.store(1);
  for (int peer = 0; peer < size; ++peer) region_->ring(peer);
  const int code = wait_for([&] {
    return std::all_of(shared.seats, shared.seats + size,
                       [](const Seat& seat) { return seat.is_ready.load() != 0; });
  });
  if (code != kSuccess) return code;
  Region::forget(name);  // all have opened it
  for (int i = 0; i < size; ++i) {
    for (int k = i + 1; k < size; ++k) {
      if (shared.seats[i].bus != shared.seats[k].bus) continue;
      char text[128];
      std::snprintf(text, sizeof text,
                    "Duplicate GPU detected : rank %d and rank %d both on CUDA device %lx", i, k,
                    static_cast<long>(shared.seats[i].bus));
      return fail(kInvalidUsage, text);
    }
  }
  return kSuccess;
}

int Comm::split(int color, int key, bool blocks, std::shared_ptr<Comm>* made, std::string* name) {
  Seat* seats = region_->shared().seats;
  const uint64_t round = ++splits_;
  const auto all_at = [&](std::atomic<uint64_t> Seat::* step, uint64_t least) {
    for (int peer = 0; peer < size; ++peer) region_->ring(peer);
    return wait_for([&, least] {
      return std::all_of(seats, seats + size,
                         [&](const Seat& seat) { return (seat.*step).load() >= least; });
    });
  };
  // What was written for the split before has been read by all.
  int code = all_at(&Seat::split_gone, round - 1);
  if (code != kSuccess) return code;
  seats[rank].color = color;
  seats[rank].key = key;
  seats[rank].split_come.store(round);
  code = all_at(&Seat::split_come, round);
  if (code != kSuccess) return code;

  std::vector<int> members;
  for (int peer = 0; peer < size; ++peer) {
    if (seats[peer].color == color) members.push_back(peer);
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return seats[a].key < seats[b].key; });
  if (color != kNoColor && members.front() == rank) {
    const std::string own = Region::create();
    std::snprintf(seats[rank].name, kNameBytes, "%s", own.c_str());
  }
  seats[rank].split_named.store(round);
  code = all_at(&Seat::split_named, round);
  if (code != kSuccess) return code;
  if (color != kNoColor) {
    const auto place = std::find(members.begin(), members.end(), rank) - members.begin();
    *made = std::make_shared<Comm>(static_cast<int>(place), static_cast<int>(members.size()),
                                   device, blocks);
    *name = seats[members.front()].name;
  }
  seats[rank].split_gone.store(round);
  for (int peer = 0; peer < size; ++peer) region_->ring(peer);
  return kSuccess;
}

// ---- order ----

int Comm::check_ready() const {
  const int code = error();
  if (code == kInProgress) {
    return fail(kInvalidArgument,
                "Attempt to use communicator before the previous operation returned ncclSuccess");
  }
  return code;
}

int Comm::perform(std::function<int()> work) {
  if (is_blocking) return work();
  if (background_.joinable()) background_.join();
  set_error(kInProgress);
  background_ = std::thread([this, work = std::move(work)] {
    const int code = work();
    int expected = kInProgress;
    error_.compare_exchange_strong(expected, code);
  });
  return kInProgress;
}

uint64_t Comm::begin() {
  const std::lock_guard lock(mutex_);
  return begun_++;
}

bool Comm::wait_turn(uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ == number || is_aborted(); });
  return !is_aborted();
}

void Comm::end(uint64_t number) {
  const std::lock_guard lock(mutex_);
  ended_ = std::max(ended_, number + 1);
  changed_.notify_all();
}

void Comm::wait_all() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ == begun_ || is_aborted(); });
}

void Comm::abort() {
  {
    const std::lock_guard lock(mutex_);
    aborted_.store(true);
    changed_.notify_all();
  }
  if (background_.joinable()) background_.join();
}

// ---- reductions ----

int Comm::add_op(const Reduction& reduction) {
  const std::lock_guard lock(mutex_);
  ops_.emplace_back(reduction);
  return kBuiltInOps + static_cast<int>(ops_.size()) - 1;
}

bool Comm::remove_op(int op) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(op - kBuiltInOps);
  if (op < kBuiltInOps || index >= ops_.size() || !ops_[index].has_value()) return false;
  ops_[index].reset();
  return true;
}

std::optional<Reduction> Comm::op(int op) {
  if (op < 0) return std::nullopt;
  if (op < kBuiltInOps) return Reduction{.op = op};
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(op - kBuiltInOps);
  return index < ops_.size() ? ops_[index] : std::nullopt;
}

}  // namespace ciuic::fake_nccl
