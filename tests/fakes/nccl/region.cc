// SPDX-License-Identifier: Apache-2.0
// region.cc: a memfd reached by /proc, futexes, and locks that end with their process.

#include "nccl/region.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <mutex>
#include <set>

namespace ciuic::fake_nccl {

static constexpr long kSleepNanoseconds = 2'000'000;  // how late an abort is seen at most

// The names that this process has made, and not yet forgotten.
static bool note_name(const std::string& name, bool is_new) {
  static std::mutex* const mutex = new std::mutex;
  static auto* const names = new std::set<std::string>;
  const std::lock_guard lock(*mutex);
  return is_new ? names->insert(name).second : names->erase(name) > 0;
}

static const std::string& own_prefix() {
  static const auto* const prefix = new std::string("/proc/" + std::to_string(::getpid()) + "/fd/");
  return *prefix;
}

std::string Region::create() {
  const int fd = ::memfd_create("ciuic_fake_nccl", MFD_CLOEXEC);
  if (fd < 0) return "";
  if (::ftruncate(fd, sizeof(Shared)) != 0) {
    ::close(fd);
    return "";
  }
  const std::string name = own_prefix() + std::to_string(fd);
  note_name(name, true);
  return name;
}

void Region::forget(const std::string& name) {
  // Several ranks may be threads of one process, and the first has closed it then.
  if (note_name(name, false)) ::close(std::atoi(name.c_str() + own_prefix().size()));
}

std::unique_ptr<Region> Region::open(const std::string& name) {
  const int fd = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    ::close(fd);
    return nullptr;
  }
  return std::unique_ptr<Region>(new Region(fd, static_cast<Shared*>(memory)));
}

Region::~Region() {
  ::munmap(shared_, sizeof(Shared));
  ::close(fd_);
}

static struct flock lock_of(int rank) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

bool Region::sit(int rank) {
  if (shared_->seats[rank].is_taken.exchange(1) != 0) return false;
  struct flock lock = lock_of(rank);
  return ::fcntl(fd_, F_OFD_SETLK, &lock) == 0;
}

bool Region::is_gone(int rank) const {
  struct flock lock = lock_of(rank);
  return ::fcntl(fd_, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

void Region::ring(int rank) const {
  std::atomic<uint32_t>& bell = shared_->seats[rank].bell;
  bell.fetch_add(1);
  ::syscall(SYS_futex, &bell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void Region::sleep(int rank, uint32_t seen) const {
  const timespec limit = {.tv_sec = 0, .tv_nsec = kSleepNanoseconds};
  ::syscall(SYS_futex, &shared_->seats[rank].bell, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

}  // namespace ciuic::fake_nccl
