// SPDX-License-Identifier: Apache-2.0
// pmi_store.h: PMI version 1, as MPICH's Hydra speaks it over the descriptor in PMI_FD.
//
// Text lines, one answer a request: init, get_maxes, get_my_kvsname, put, barrier_in, get, finalize
// (Balaji et al., "PMI: A Scalable Parallel Process-Management Interface for Extreme-Scale
// Systems", EuroMPI 2010). Values are sent in hexadecimal, in pieces as long as the launcher
// allows.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "bootstrap/fenced_store.h"
#include "ciuic/store.h"
#include "drivers/posix/unique_fd.h"

namespace ciuic::bootstrap {

// A process's conversation with its launcher. Hydra takes the end of a process that has said "init"
// and not "finalize" for a failure, and kills the job; so the destructor says it, except in a
// forked child, and a session lasts as long as its process: see process_pmi_session().
class PmiSession {
 public:
  // `fd` stays the caller's; a duplicate of it is used.
  static Result<std::shared_ptr<PmiSession>> open(int fd, TimeNs deadline);
  ~PmiSession();
  PmiSession(const PmiSession&) = delete;
  PmiSession& operator=(const PmiSession&) = delete;

  Result<std::string> broadcast(const std::string* value, TimeNs deadline);
  uint32_t count() const { return count_; }

 private:
  PmiSession() = default;
  Result<std::string> ask(const std::string& line, const std::string& answer, TimeNs deadline);
  Result<std::string> read_line(TimeNs deadline);
  Status put(const std::string& key, const std::string& value, TimeNs deadline);
  Result<std::string> get(const std::string& key, TimeNs deadline);

  std::mutex mutex_;
  posix::UniqueFd fd_;
  pid_t owner_ = 0;
  std::string input_;
  std::string kvs_;
  size_t value_bytes_ = 0;  // that fit into one value
  uint32_t count_ = 0;
  Status broken_;
};

// The session of this process over `fd`, made by the first call. The one object of this library
// that lasts as long as the process, because the launcher allows one conversation a process.
Result<std::shared_ptr<PmiSession>> process_pmi_session(int fd, TimeNs deadline);

class PmiStore final : public Store, public FencedStore {
 public:
  explicit PmiStore(std::shared_ptr<PmiSession> session) : session_(std::move(session)) {}

  // PMI has no counters and no waiting: kUnsupported. The join uses broadcast().
  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, int64_t timeout_ms) override;
  Result<int64_t> add(const std::string& key, int64_t amount) override;
  std::string name() const override { return "pmi"; }
  bool is_private() const override { return true; }

  Result<std::string> broadcast(const std::string* value, TimeNs deadline) override {
    return session_->broadcast(value, deadline);
  }
  uint32_t count() const override { return session_->count(); }

 private:
  std::shared_ptr<PmiSession> session_;
};

}  // namespace ciuic::bootstrap
