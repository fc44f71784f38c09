// SPDX-License-Identifier: Apache-2.0
// poller.cc: epoll, with an eventfd that wakes it.
//
// The kernel is given a number for each registration, not a pointer: an event that was collected
// just before its socket was removed finds no entry under the number and is dropped.

#include "drivers/posix/poller.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <mutex>
#include <unordered_map>

#include "drivers/posix/system_status.h"
#include "drivers/posix/unique_fd.h"

namespace ciuic::posix {

static constexpr uint64_t kDoorbell = 0;
static constexpr int kEventsAtOnce = 64;

struct Poller::State {
  UniqueFd epoll;
  UniqueFd doorbell;

  std::mutex mutex;  // guards all below
  uint64_t next_number = kDoorbell + 1;
  std::unordered_map<int, uint64_t> number_of;
  std::unordered_map<uint64_t, std::atomic<uint32_t>*> ready_of;
};

Poller::Poller(std::unique_ptr<State> state) : state_(std::move(state)) {}
Poller::~Poller() = default;

Result<std::unique_ptr<Poller>> Poller::create() {
  auto state = std::make_unique<State>();
  state->epoll.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!state->epoll) return system_status("epoll_create1", errno);
  state->doorbell.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state->doorbell) return system_status("eventfd", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kDoorbell;
  if (epoll_ctl(state->epoll.get(), EPOLL_CTL_ADD, state->doorbell.get(), &event) != 0) {
    return system_status("epoll_ctl for the doorbell", errno);
  }
  return std::unique_ptr<Poller>(new Poller(std::move(state)));
}

Status Poller::add(int fd, std::atomic<uint32_t>* ready) {
  std::lock_guard lock(state_->mutex);
  const uint64_t number = state_->next_number++;
  state_->ready_of[number] = ready;  // before the kernel can report it
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = number;
  if (epoll_ctl(state_->epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    const int error = errno;
    state_->ready_of.erase(number);
    return system_status("epoll_ctl", error);
  }
  state_->number_of[fd] = number;
  return {};
}

void Poller::remove(int fd) {
  std::lock_guard lock(state_->mutex);
  const auto entry = state_->number_of.find(fd);
  if (entry == state_->number_of.end()) return;
  epoll_ctl(state_->epoll.get(), EPOLL_CTL_DEL, fd, nullptr);
  state_->ready_of.erase(entry->second);
  state_->number_of.erase(entry);
}

static uint32_t bits_of(uint32_t events) {
  uint32_t bits = 0;
  if ((events & (EPOLLIN | EPOLLRDHUP)) != 0) bits |= kReadable;
  if ((events & EPOLLOUT) != 0) bits |= kWritable;
  if ((events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) != 0) bits |= kHangUp;
  return bits;
}

bool Poller::poll(int64_t timeout_ms) {
  std::array<epoll_event, kEventsAtOnce> events;
  const int timeout = static_cast<int>(std::clamp<int64_t>(timeout_ms, -1, INT_MAX));
  // A signal ends the sleep too: the caller looks at its deadline, and at what the signal did.
  const int count = epoll_wait(state_->epoll.get(), events.data(), kEventsAtOnce, timeout);
  if (count <= 0) return false;
  std::lock_guard lock(state_->mutex);
  for (int i = 0; i < count; ++i) {
    const uint64_t key =
        events[i].data.u64;  // a copy: epoll_event is packed, its fields misaligned
    if (key == kDoorbell) {
      uint64_t rings = 0;
      [[maybe_unused]] const ssize_t got = ::read(state_->doorbell.get(), &rings, sizeof rings);
      continue;
    }
    const auto entry = state_->ready_of.find(key);
    if (entry == state_->ready_of.end()) continue;
    entry->second->fetch_or(bits_of(events[i].events), std::memory_order_acq_rel);
  }
  return true;
}

void Poller::ring() {
  const uint64_t one = 1;
  // EAGAIN: the counter is full, so the bell is ringing already.
  [[maybe_unused]] const ssize_t put = ::write(state_->doorbell.get(), &one, sizeof one);
}

int Poller::doorbell_fd() const { return state_->doorbell.get(); }

}  // namespace ciuic::posix
