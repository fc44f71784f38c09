// SPDX-License-Identifier: Apache-2.0
// pair_fuzz.cc: a process of this host that knows the secret, and offers any memory, passes any
// descriptors and says anything.

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "drivers/posix/fd_passing.h"
#include "drivers/posix/memfd.h"
#include "input.h"
#include "sockets.h"
#include "transport/shm/pair.h"
#include "transport/shm/segment.h"

using namespace ciuic;
using transport::shm::Segment;

namespace {

constexpr int kMine = 0;
constexpr int kTheirs = 1;

std::shared_ptr<Segment> segment_of(int rank) {
  transport::shm::SegmentOwner owner;
  owner.epoch = 3;
  owner.group = 7;
  owner.rank = rank;
  owner.ranks = {kMine, kTheirs};
  Result<std::shared_ptr<Segment>> segment = Segment::create(owner);
  fuzz::require(segment.ok(), "memory for a segment");
  return *segment;
}

// Memory with the input's bytes at its beginning; sealed or not, of the right size or not.
posix::UniqueFd memory(fuzz::Input* input, size_t right_bytes) {
  const bool sealed = input->flag();
  const size_t bytes = input->flag() ? right_bytes : input->u16();
  posix::UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  fuzz::require(::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0, "a size");
  const std::string_view content = input->bytes(std::min<size_t>(input->u16(), bytes));
  fuzz::require(::pwrite(fd.get(), content.data(), content.size(), 0) >= 0, "a content");
  if (sealed) ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  return fd;
}

posix::UniqueFd descriptor(fuzz::Input* input, const Segment& theirs) {
  switch (input->below(5)) {
    case 0: return posix::UniqueFd(::dup(theirs.fd()));
    case 1: return memory(input, theirs.bytes());
    case 2: return posix::UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC));
    case 3: return posix::UniqueFd(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    default: return posix::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  }
}

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 256; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

// The three messages as an honest peer writes them; the input changes some of their bytes.
std::string message(int stage, const Segment& mine, const Segment& theirs) {
  std::string bytes;
  if (stage == 0) {
    bytes = "ciuicofr";
    const uint32_t numbers[] = {transport::shm::kSegmentVersion,
                                static_cast<uint32_t>(theirs.bytes())};
    bytes.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
  } else if (stage == 1) {
    bytes.assign(reinterpret_cast<const char*>(&mine.nonce()), sizeof mine.nonce());
  } else {
    bytes.assign(256, '\0');
    bytes[0] = '\x01';
  }
  return bytes;
}

void speak(const posix::UniqueFd& socket, fuzz::Input* input, const Segment& mine,
           const Segment& theirs, transport::shm::Pair* pair, int before) {
  for (int stage = 0; stage < 3; ++stage) {
    std::string bytes = input->flag() ? message(stage, mine, theirs) : std::string(input->text());
    for (int changes = input->below(4); changes > 0 && !bytes.empty(); --changes) {
      char& byte = bytes[input->u8() % bytes.size()];
      byte = static_cast<char>(byte ^ input->u8());
    }
    std::vector<posix::UniqueFd> fds;
    for (int count = input->below(5); count > 0; --count) {
      fds.push_back(descriptor(input, theirs));
    }
    std::vector<int> numbers;
    for (const posix::UniqueFd& fd : fds) numbers.push_back(fd.get());
    // The descriptors go with the whole message, or with each byte of it.
    const size_t piece = input->flag() ? std::max<size_t>(1, bytes.size()) : 1;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      [[maybe_unused]] const auto sent =
          posix::send_with_fds(socket.get(), bytes.data() + at, piece, numbers);
      pair->progress();
    }
    fuzz::require(open_descriptors() < before + 14, "few descriptors are kept");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<Segment> mine = segment_of(kMine);
  static const std::shared_ptr<Segment> theirs = segment_of(kTheirs);
  static const posix::UniqueFd doorbell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  fuzz::Input input(data, size);
  const int before = open_descriptors();
  {
    fuzz::SocketPair sockets = fuzz::socket_pair();
    transport::shm::Pair pair(mine, kTheirs, doorbell.get());
    pair.proven(std::move(sockets.ours));
    pair.progress();
    speak(sockets.theirs, &input, *mine, *theirs, &pair, before);
    sockets.theirs.reset();
    pair.progress();
    fuzz::require(pair.settled(), "a pair comes to an end");
    fuzz::require_text(pair.reason());
    if (pair.reason().ok()) {
      const transport::shm::Pair::Outcome outcome = pair.take_outcome();
      fuzz::require(outcome.mapping.bytes() == mine->bytes(), "memory of the right size");
    }
  }
  fuzz::require(open_descriptors() == before, "every descriptor is given back");
  return 0;
}
