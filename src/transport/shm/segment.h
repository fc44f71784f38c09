// SPDX-License-Identifier: Apache-2.0
// segment.h: the shared memory that this rank owns in one group, and the word that says it sleeps.
//
// One engine thread at a time. Freed when the last link of the group lets go of it; peers that have
// it mapped can still read what was sent. In a child made by fork it must not be used: the memory
// stays shared with the parent.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ciuic/status.h"
#include "drivers/posix/memfd.h"
#include "transport/shm/lending.h"
#include "transport/shm/segment_layout.h"
#include "transport/shm/slot_pool.h"

namespace ciuic::transport::shm {

struct SegmentOwner {
  uint32_t epoch = 0;
  uint32_t group = 0;
  int rank = 0;
  std::vector<int> ranks;  // the host's, ascending, with `rank` among them; 2 to kMaxLocalRanks
};

class Segment {
 public:
  // Makes, seals and touches it. kResource: not so much memory, with the number of bytes.
  // `pool`: shared tensors that the links may let their peers read; may be null.
  static Result<std::shared_ptr<Segment>> create(const SegmentOwner& owner,
                                                 std::shared_ptr<memory::SharedPool> pool = {});

  const SegmentView& view() const { return view_; }
  const SegmentOwner& owner() const { return owner_; }
  int fd() const { return fd_.get(); }
  size_t bytes() const { return mapping_.bytes(); }
  const Nonce& nonce() const { return nonce_; }
  SlotPool& slots() { return slots_; }
  OwnRegions* regions() { return &regions_; }

  // The place of a rank of this host, or -1.
  int index_of(int rank) const;

  // Says to the peers that this process is about to sleep, so that they ring its doorbell. To lose
  // no wake-up: set it, let the engine take one more step, and sleep only if nothing moved.
  void set_sleeping(bool sleeping);

  // A link found no line or slot free: a sleeper then wants to hear of releases too. True: that was
  // not known yet, and the caller must look once more.
  bool want_space();

 private:
  Segment(const SegmentOwner& owner, posix::UniqueFd fd, posix::Mapping mapping,
          const SegmentLayout& layout, const Nonce& nonce,
          std::shared_ptr<memory::SharedPool> pool);

  SegmentOwner owner_;
  posix::UniqueFd fd_;
  posix::Mapping mapping_;
  SegmentView view_;
  SlotPool slots_;
  OwnRegions regions_;
  Nonce nonce_;
  bool wants_space_ = false;
};

// Looks at a mapping of another rank's segment: kMismatch unless it is that of `rank` in the same
// group, with the same ranks.
Result<SegmentView> check_segment(const posix::Mapping& mapping, const SegmentOwner& mine,
                                  int rank);

}  // namespace ciuic::transport::shm
