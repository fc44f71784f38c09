// SPDX-License-Identifier: Apache-2.0
// memfd.cc: memfd_create, its seals, and mmap.

#include "drivers/posix/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "drivers/posix/limits.h"
#include "drivers/posix/system_status.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace ciuic::posix {

// From here on it is worth a look at what the machine has.
static constexpr size_t kLarge = size_t{1} << 20;

static constexpr int kFixedSize = F_SEAL_SHRINK | F_SEAL_GROW;

// mmap and fallocate fail with ENOMEM, ENOSPC or, at a limit of the process, EFBIG or EAGAIN; for
// the user all of them are "not so much memory".
static Status memory_status(const std::string& what, size_t bytes, int error) {
  return Status(StatusCode::kResource, what + " of " + std::to_string(bytes) +
                                           " bytes: " + errno_text(error) + "; " + memory_advice());
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) munmap(data_, bytes_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Result<Mapping> Mapping::map(int fd, size_t bytes, bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* data = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (data == MAP_FAILED) return memory_status("mapping shared memory", bytes, errno);
  Mapping mapping;
  mapping.data_ = static_cast<std::byte*>(data);
  mapping.bytes_ = bytes;
  return mapping;
}

Result<UniqueFd> create_memfd(const std::string& name, size_t bytes) {
  // The kernel would first take all that there is, and then look for a process to kill.
  if (bytes >= kLarge && bytes > available_memory()) {
    return memory_status("shared memory", bytes, ENOMEM);
  }
  UniqueFd fd(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return system_status("memfd_create", errno);
  int error = 0;
  do {
    error = posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error != 0) return memory_status("shared memory", bytes, error);
  if (fcntl(fd.get(), F_ADD_SEALS, kFixedSize) != 0) {
    return system_status("sealing shared memory", errno);
  }
  return fd;
}

void seal_future_writes(int fd) {
  [[maybe_unused]] const int result = fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
}

void close_on_exec(int fd) { [[maybe_unused]] const int result = fcntl(fd, F_SETFD, FD_CLOEXEC); }

Status check_sealed(int fd, size_t bytes) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kFixedSize) != kFixedSize) {
    return Status(StatusCode::kMismatch, "the memory that was passed is not sealed in its size");
  }
  struct stat found{};
  if (fstat(fd, &found) != 0) return system_status("fstat", errno);
  if (found.st_size != static_cast<off_t>(bytes)) {
    return Status(StatusCode::kMismatch, "the memory that was passed has " +
                                             std::to_string(found.st_size) + " bytes, not " +
                                             std::to_string(bytes));
  }
  return {};
}

}  // namespace ciuic::posix
