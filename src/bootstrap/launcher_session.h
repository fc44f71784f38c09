// SPDX-License-Identifier: Apache-2.0
// launcher_session.h: values of any size and content through a launcher's key-value space.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "bootstrap/fenced_store.h"
#include "bootstrap/launcher_space.h"
#include "ciuic/store.h"

namespace ciuic::bootstrap {

// Lasts as long as its process, where the launcher allows one conversation a process. Any thread.
class LauncherSession {
 public:
  explicit LauncherSession(std::unique_ptr<LauncherSpace> space) : space_(std::move(space)) {}

  // As FencedStore::broadcast(). Values are sent in hexadecimal, in pieces as long as the launcher
  // allows.
  Result<std::string> broadcast(const std::string* value, TimeNs deadline);
  uint32_t count() const { return count_; }
  const char* name() const { return space_->name(); }

 private:
  Status leave(const std::string& prefix, const std::string& value, TimeNs deadline);
  Result<std::string> fetch(const std::string& prefix, TimeNs deadline);
  Status not_ours() const;

  std::mutex mutex_;
  std::unique_ptr<LauncherSpace> space_;
  uint32_t count_ = 0;
  Status broken_;
};

// A session as the join wants it.
class LauncherStore final : public Store, public FencedStore {
 public:
  explicit LauncherStore(std::shared_ptr<LauncherSession> session) : session_(std::move(session)) {}

  // A launcher has no counters and no waiting: kUnsupported. The join uses broadcast().
  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, int64_t timeout_ms) override;
  Result<int64_t> add(const std::string& key, int64_t amount) override;
  std::string name() const override { return session_->name(); }
  bool is_private() const override { return true; }

  Result<std::string> broadcast(const std::string* value, TimeNs deadline) override {
    return session_->broadcast(value, deadline);
  }
  uint32_t count() const override { return session_->count(); }

 private:
  std::shared_ptr<LauncherSession> session_;
};

}  // namespace ciuic::bootstrap
