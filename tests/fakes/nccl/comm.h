// SPDX-License-Identifier: Apache-2.0
// comm.h: a communicator of the fake: who is in it, and its work in the order of the calls.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "nccl/arithmetic.h"
#include "nccl/codes.h"
#include "nccl/region.h"

namespace ciuic::fake_nccl {

// ncclConfig_t, as far as the fake looks into it.
struct Config {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cga_cluster_size;
  int min_ctas;
  int max_ctas;
  const char* net_name;
  int split_share;
  int traffic_class;
};

// kSuccess and whether calls block, or why NCCL of this version would not take it. Null is fine.
int read_config(const Config* config, bool* is_blocking);

class Comm {
 public:
  Comm(int own_rank, int ranks, int own_device, bool blocks)
      : rank(own_rank), size(ranks), device(own_device), is_blocking(blocks) {}
  ~Comm();

  const int rank;
  const int size;
  const int device;
  const bool is_blocking;

  // The handles that there are; null: it is none.
  static std::shared_ptr<Comm> find(const void* handle);
  static void* keep(std::shared_ptr<Comm> comm);
  static void forget(const void* handle);

  // Meets the others at the region of that name.
  int join(const std::string& name);
  // Meets the others of the same color. Null in `made`: no color.
  int split(int color, int key, bool blocks, std::shared_ptr<Comm>* made, std::string* name);

  // Whether a call may use it; else the code to return.
  int check_ready() const;
  // Runs `work`; where calls do not block, on a thread of its own, and returns kInProgress.
  int perform(std::function<int()> work);

  // Work in the order of the calls. begin() returns its number, wait_turn() false: aborted.
  uint64_t begin();
  bool wait_turn(uint64_t number);
  void end(uint64_t number);
  void wait_all();  // that was begun, or for an abort

  void abort();
  bool is_aborted() const { return aborted_.load(); }
  void set_error(int code) { error_.store(code); }
  int error() const { return error_.load(); }

  const Region& region() const { return *region_; }

  int add_op(const Reduction& op);
  bool remove_op(int op);
  std::optional<Reduction> op(int op);  // built in, or made

  // Held where work is put on streams, so that their order is that of the numbers.
  std::mutex launch_mutex;

 private:
  int wait_for(const std::function<bool()>& condition) const;  // of the others' seats

  std::unique_ptr<Region> region_;
  std::atomic<bool> aborted_{false};
  std::atomic<int> error_{kSuccess};
  std::thread background_;
  uint64_t splits_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t begun_ = 0;
  uint64_t ended_ = 0;
  std::vector<std::optional<Reduction>> ops_;
};

}  // namespace ciuic::fake_nccl
