// SPDX-License-Identifier: Apache-2.0
// file_store.cc: files, renames, flock, and inotify where the file system has it.

#include "bootstrap/file_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/clock.h"
#include "bootstrap/store_limits.h"
#include "drivers/posix/process.h"
#include "drivers/posix/socket.h"
#include "drivers/posix/system_status.h"
#include "drivers/posix/unique_fd.h"

namespace ciuic::bootstrap {

// Network file systems tell of no changes by other machines, so one looks again after this long.
static constexpr int kLookAgainMs = 50;
static constexpr int64_t kLockMs = 30'000;

Result<std::unique_ptr<FileStore>> FileStore::open(const std::string& directory) {
  if (directory.empty() || directory.front() != '/') {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("file store: \"{}\" is no absolute path", directory));
  }
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(directory).parent_path();
  std::filesystem::create_directories(parent, error);
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return posix::system_status("file store: mkdir " + directory, errno);
  }
  struct stat facts{};
  if (::stat(directory.c_str(), &facts) != 0) {
    return posix::system_status("file store: stat " + directory, errno);
  }
  if (!S_ISDIR(facts.st_mode)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("file store: {} is no directory", directory));
  }
  // Whoever can write here could put up a rank 0 of his own, and who can read learns the secret;
  // the files themselves are 0600.
  if (facts.st_uid != geteuid() || (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Status(StatusCode::kPermission,
                  fmt::format("file store: {} must belong to this user and be writable by nobody "
                              "else (chmod 700 it, or name a new directory)",
                              directory));
  }
  return std::unique_ptr<FileStore>(new FileStore(directory));
}

// Letters, digits, '-' and '_' stand for themselves, everything else as %xx: no key can name a
// path, a lock or a temporary file.
std::string FileStore::path_of(const std::string& key) const {
  std::string path = directory_ + "/";
  for (const char c : key) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
    path += plain ? std::string(1, c) : fmt::format("%{:02x}", static_cast<unsigned char>(c));
  }
  return path;
}

Status FileStore::write(const std::string& path, const std::string& value) {
  Result<uint64_t> unique = posix::random_uint64();
  if (!unique.ok()) return unique.status();
  const std::string temporary = fmt::format("{}/.{:016x}.tmp", directory_, *unique);
  posix::UniqueFd fd(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return posix::system_status("file store: create " + temporary, errno);
  size_t done = 0;
  while (done < value.size()) {
    const ssize_t count = ::write(fd.get(), value.data() + done, value.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      ::unlink(temporary.c_str());
      return posix::system_status("file store: write " + temporary, error);
    }
    done += static_cast<size_t>(count);
  }
  fd.reset();
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return posix::system_status("file store: rename to " + path, error);
  }
  return {};
}

Status FileStore::set(const std::string& key, const std::string& value) {
  CIUIC_RETURN_IF_ERROR(check_entry(key, value));
  return write(path_of(key), value);
}

static bool is_absent(const std::string& path) {
  return ::access(path.c_str(), F_OK) != 0 && errno == ENOENT;
}

Result<std::string> FileStore::get(const std::string& key, int64_t timeout_ms) {
  CIUIC_RETURN_IF_ERROR(check_entry(key, ""));
  const std::string path = path_of(key);
  const TimeNs deadline = deadline_after(now_ns(), timeout_ms);
  posix::UniqueFd watch;
  while (true) {
    Result<std::string> value = posix::read_file(path, kMaxValueBytes + 1);
    if (value.ok()) return value;
    if (!is_absent(path)) {
      // It may have come after it was found missing; only what fails again is an error.
      value = posix::read_file(path, kMaxValueBytes + 1);
      if (value.ok() || !is_absent(path)) return value;
    }
    const TimeNs now = now_ns();
    if (now >= deadline) return absent(name(), key, timeout_ms);
    if (!watch) {  // then look once more: it may have come in between
      watch.reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
      if (watch) inotify_add_watch(watch.get(), directory_.c_str(), IN_MOVED_TO);
      if (watch) continue;
    }
    pollfd entry{watch.get(), POLLIN, 0};
    ::poll(&entry, 1, posix::poll_timeout_ms(deadline, now, kLookAgainMs));
    char events[4096];
    while (watch && ::read(watch.get(), events, sizeof events) > 0) {
    }
  }
}

Result<int64_t> FileStore::add(const std::string& key, int64_t amount) {
  CIUIC_RETURN_IF_ERROR(check_entry(key, ""));
  const std::string lock_path = directory_ + "/.lock";
  posix::UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return posix::system_status("file store: open " + lock_path, errno);
  const TimeNs deadline = deadline_after(now_ns(), kLockMs);
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return posix::system_status("file store: lock " + lock_path, errno);
    }
    if (now_ns() >= deadline) {
      return Status(StatusCode::kTimeout, "file store: another process keeps " + lock_path);
    }
    ::poll(nullptr, 0, 1);  // the holder needs microseconds
  }
  const std::string path = path_of(key);
  Result<std::string> value = posix::read_file(path, 64);
  if (!value.ok() && !is_absent(path)) return value.status();
  Result<int64_t> sum = add_to_text(key, value.ok() ? *value : "", amount);
  if (!sum.ok()) return sum;
  CIUIC_RETURN_IF_ERROR(write(path, std::to_string(*sum)));
  return sum;
}

void FileStore::erase(const std::string& key) { ::unlink(path_of(key).c_str()); }

}  // namespace ciuic::bootstrap
