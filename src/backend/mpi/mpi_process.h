// SPDX-License-Identifier: Apache-2.0
// mpi_process.h: the MPI of this process: opened, initialised, and made to progress.
//
// MPI is initialised with MPI_THREAD_MULTIPLE where nobody has, and then finalised at exit. Where
// the program has, its level holds: at MULTIPLE any thread may call; at SERIALIZED too, one at a
// time, which the lock here sees to among Ciuic's own calls; below it, only the thread that
// initialised.
//
// MPI progresses in its calls. A thread in wait() makes them: it spins, then yields, then sleeps
// for moments. While operations are under way that nobody waits for, a background thread does, at
// MULTIPLE alone.
//
// One for a process, which it lives as long as. In a forked child it does nothing.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backend/mpi/mpi_group.h"
#include "base/fork.h"
#include "ciuic/options.h"
#include "engine/completions.h"
#include "engine/work_state.h"

namespace ciuic::backend {

class MpiProcess final : public engine::WorkDriver,
                         public std::enable_shared_from_this<MpiProcess> {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // `library` comes before those of the options; "" for none. kUnavailable: no library, or one that
  // was finalised. kInvalidArgument: another library than that of an earlier call.
  static Result<std::shared_ptr<MpiProcess>> of(const MpiOptions& options,
                                                const std::string& library);

  // For tests, with a library that need not be one. Initialises it where it is not.
  static Result<std::shared_ptr<MpiProcess>> make(mpi::Library library);

  const mpi::Library& library() const { return library_; }
  MpiTypes* types() { return &types_; }
  const std::string& version() const { return version_; }
  const char* thread_level() const;
  bool is_ours() const { return initialised_here_; }  // initialised by Ciuic
  int largest_tag() const { return largest_tag_; }

  // kUnsupported: this thread may not call MPI.
  Status check_thread() const;

  // A duplicate of the communicator for Ciuic alone. Of 0, which is MPI_COMM_WORLD, there is one,
  // made by the first call. All of its ranks call it. kTimeout: not all came.
  Result<mpi::Handle> duplicate_of(mpi::Handle communicator, TimeNs deadline);

  // Rank 0's value, on all ranks; the others pass null. kTimeout: rank 0 did not come.
  Result<std::string> broadcast(mpi::Handle communicator, const std::string* value,
                                TimeNs deadline);

  // Communicators with errors as values. All members call; blocks until they have.
  Result<mpi::Handle> reordered(mpi::Handle communicator, int rank);
  Result<mpi::Handle> part_of(mpi::Handle communicator, std::span<const int> ranks, int tag);
  void free(mpi::Handle communicator);

  Result<int> size_of(mpi::Handle communicator);
  Result<int> rank_in(mpi::Handle communicator);

  // Makes a thread that drives give way.
  Lock lock();
  void add(MpiGroup* group);     // with the lock held
  void remove(MpiGroup* group);  // without it
  void watch();  // an operation was started that nobody waits for; with the lock held
  void abandon() { abandoned_ = true; }  // at exit, MPI can only be aborted

  // At exit: finalises MPI where it is ours; ends the job where operations were abandoned, since
  // MPI_Finalize would wait for them.
  void leave();
  static void leave_all();

  bool wait(engine::WorkState* work, TimeNs deadline) override;
  void nudge() override;
  void complete(std::function<void()> fn) override { completions_.call(std::move(fn)); }
  void wake() override {}  // who waits for MPI asks it in turns, and finds what else has happened
  bool is_of_parent() const override { return made_in_ != fork_generation(); }

 private:
  explicit MpiProcess(mpi::Library library) : library_(std::move(library)), types_(&library_) {}

  Status initialise();
  Result<mpi::Handle> adopt(mpi::Handle communicator, int code, const char* what);
  Status run(mpi::Handle request, TimeNs deadline, const char* what);
  Status error(const char* what, int code) const;
  bool step(TimeNs now);
  bool is_busy() const;
  bool oversubscribed() const;
  void run_background();

  const uint32_t made_in_ = fork_generation();
  mpi::Library library_;
  std::string version_;
  int thread_level_ = 0;
  bool initialised_here_ = false;
  int largest_tag_ = 32767;

  std::atomic<int> contenders_{0};  // threads that want the mutex from one that drives
  std::mutex mutex_;                // guards MPI where it is not MULTIPLE, and what follows
  MpiTypes types_;
  std::vector<MpiGroup*> groups_;
  mpi::Handle own_world_ = 0;  // duplicate of MPI_COMM_WORLD
  int callers_ = 0;
  bool abandoned_ = false;
  bool has_left_ = false;
  bool closing_ = false;
  std::condition_variable parked_;
  std::thread background_;
  engine::Completions completions_;
};

}  // namespace ciuic::backend
