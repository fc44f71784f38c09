// SPDX-License-Identifier: Apache-2.0
// file_store.h: a store in a directory, which all ranks see (one host, or a shared file system).
//
// One file a key, readable by the owner alone, replaced by rename, so that a reader sees all of a
// value or none. Numbers are added under an advisory lock, which dies with its holder.
#pragma once

#include <memory>
#include <string>

#include "bootstrap/erasable.h"
#include "ciuic/store.h"

namespace ciuic::bootstrap {

class FileStore final : public Store, public Erasable {
 public:
  // Makes the directory (mode 0700) where it is not there. kPermission: others may write into it,
  // or it is another user's. kInvalidArgument: not absolute, or no directory.
  static Result<std::unique_ptr<FileStore>> open(const std::string& directory);

  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, int64_t timeout_ms) override;
  Result<int64_t> add(const std::string& key, int64_t amount) override;
  std::string name() const override { return "file://" + directory_; }
  bool is_private() const override { return true; }
  void erase(const std::string& key) override;

 private:
  explicit FileStore(std::string directory) : directory_(std::move(directory)) {}
  std::string path_of(const std::string& key) const;
  Status write(const std::string& path, const std::string& value);

  std::string directory_;
};

}  // namespace ciuic::bootstrap
