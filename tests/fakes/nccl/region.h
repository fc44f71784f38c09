// SPDX-License-Identifier: Apache-2.0
// region.h: the memory that the ranks of a communicator share.
//
// It is a memfd of the process that made the unique id, which names it as /proc/<pid>/fd/<n>; so
// nothing is left behind. A rank has a seat, and a ring of bytes to each other one. Each rank holds
// a lock on the byte of its number, by which the others see that its process is gone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ciuic::fake_nccl {

inline constexpr int kMostRanks = 16;
inline constexpr size_t kRingBytes = size_t{64} << 10;
inline constexpr size_t kNameBytes = 64;

struct Seat {
  std::atomic<uint32_t> is_taken;
  std::atomic<uint32_t> is_ready;  // `bus` is written
  int64_t bus;                     // number of the device
  std::atomic<uint32_t> bell;      // rung when one of its rings has moved, or its state

  // Of ncclCommSplit: how often this rank has come, written its new group's name, and gone on.
  std::atomic<uint64_t> split_come;
  std::atomic<uint64_t> split_named;
  std::atomic<uint64_t> split_gone;
  int color;
  int key;
  char name[kNameBytes];
};

struct Ring {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  std::byte bytes[kRingBytes];
};

struct Shared {
  std::atomic<int> size;
  Seat seats[kMostRanks];
  Ring rings[kMostRanks][kMostRanks];  // from, to
};

class Region {
 public:
  // A new one; the name lives as long as the process does, or until forget().
  static std::string create();  // empty: it cannot
  static void forget(const std::string& name);

  static std::unique_ptr<Region> open(const std::string& name);  // null: it is gone
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  Shared& shared() const { return *shared_; }

  // Takes the seat; false: it is taken.
  bool sit(int rank);
  bool is_gone(int rank) const;  // who has sat there

  void ring(int rank) const;  // wakes it
  // Sleeps until the bell of `rank` is rung after `seen` was read from it, some milliseconds at
  // most.
  void sleep(int rank, uint32_t seen) const;

 private:
  Region(int fd, Shared* shared) : fd_(fd), shared_(shared) {}

  const int fd_;
  Shared* const shared_;
};

}  // namespace ciuic::fake_nccl
