// SPDX-License-Identifier: Apache-2.0
// work.h: an operation under way.
//
// A Work may be copied; the copies speak of the same operation. Any thread may call. Dropping the
// last one neither ends nor waits for the operation, whose buffers must live until it has ended.
#pragma once

#include <functional>

#include "ciuic/export.h"
#include "ciuic/options.h"
#include "ciuic/status.h"

namespace ciuic {

namespace engine {
class WorkState;
}

class CIUIC_EXPORT Work {
 public:
  Work() = default;                                           // holds nothing; wait() is ok at once
  explicit Work(engine::WorkState* state) : state_(state) {}  // takes over one reference
  Work(const Work& other);
  Work(Work&& other) noexcept : state_(other.state_) { other.state_ = nullptr; }
  Work& operator=(Work other) noexcept;
  ~Work();

  // Blocks until the operation has ended and returns how. Drives the engine itself.
  // The operation's own time-out ends the wait: kTimeout, kPeerLost, kMismatch, kAborted.
  Status wait();

  // The same, but gives up waiting after `timeout_ms`: kTimeout, and the operation goes on.
  Status wait_for(int64_t timeout_ms);

  // Whether it has ended, well or not. Lets the engine take one step; never blocks.
  bool done();

  // How it ended; ok where it has not.
  Status status() const;

  // Of a recv that has ended well: whose message it got, and with which tag. Else -1.
  int source() const;
  int tag() const;

  // Makes `stream` wait for the result on its device: what is put into the stream from now on finds
  // it there. Backend "nccl" does not block the caller, and its errors are those of later calls.
  // Where tensors travel by way of the host, the caller waits until all has arrived there, for
  // `timeout_ms` at most (kTimeout, and the operation goes on; -1: until it has ended), and the
  // stream for the copy to the device. Operations of CPU tensors wait here.
  Status wait_on(const Stream& stream, int64_t timeout_ms = -1);

  // Calls `fn` once, when the operation has ended: at once where it has, else on a thread for
  // completions, on which `fn` may call operations and wait for them.
  void on_done(std::function<void(const Status&)> fn);

  engine::WorkState* state() const { return state_; }  // for the layers of the library

 private:
  engine::WorkState* state_ = nullptr;
};

}  // namespace ciuic
