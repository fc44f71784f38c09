// SPDX-License-Identifier: Apache-2.0
// rank_processes.h: real processes as the ranks of a group, to be killed, stopped and talked to.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "ciuic/communicator.h"

namespace ciuic::fault {

// A child's way to talk to the test, one line at a time.
class Teller {
 public:
  Teller(int in, int out) : in_(in), out_(out) {}
  void say(const std::string& line) const;
  std::string hear() const;  // waits; "" where the test is gone
  bool has_word() const;     // whether hear() would not wait

 private:
  int in_;
  int out_;
};

// Forked children, killed at the latest when this ends. The process that makes it has no threads.
class RankProcesses {
 public:
  using Body = std::function<void(int rank, const Teller& teller)>;

  RankProcesses(int size, const Body& body);
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  void say(int rank, const std::string& line);
  std::string hear(int rank);  // waits; "" where the child has ended
  void signal(int rank, int number);
  int exit_status(int rank);  // waits for its end; as of waitpid()

 private:
  struct Child {
    pid_t pid = -1;
    int in = -1;   // what it says
    int out = -1;  // what it hears
    std::string read;
  };
  std::vector<Child> children_;
};

// A directory for a file store, removed with all that is in it.
class Directory {
 public:
  Directory();
  ~Directory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Joins as one of `size` ranks that meet in the directory. Ends the process where that fails.
std::unique_ptr<Communicator> join(const std::string& directory, int rank, int size,
                                   int64_t timeout_ms);

// Runs the operation named on floats, and waits for it: a collective, with `count` elements a rank
// or part and rank 1 as root, or "ring": each sends to the next rank and receives from the last.
Status run(Communicator& communicator, const std::string& operation, int64_t count);

int64_t milliseconds();  // of CLOCK_MONOTONIC, alike in all processes

}  // namespace ciuic::fault
