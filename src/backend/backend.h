// SPDX-License-Identifier: Apache-2.0
// backend.h: who carries a group's operations out. A communicator has one.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "ciuic/call.h"
#include "ciuic/options.h"
#include "ciuic/status.h"
#include "ciuic/work.h"
#include "engine/data_path.h"
#include "engine/engine.h"
#include "engine/work_state.h"

namespace ciuic::backend {

struct Capabilities {
  const char* name = "";   // "native"
  bool cuda = false;       // takes tensors on a GPU
  bool can_abort = false;  // abort() ends operations that are under way
};

// Calls that were checked once, to be started any number of times.
class Prepared {
 public:
  virtual ~Prepared() = default;

  // Of the starts from now on, of tensors on a GPU.
  virtual void set_stream(const Stream& /*stream*/) {}

  // Only when what was started before has ended, or a stream waits for it. kClosed: the backend is.
  virtual Result<Work> start() = 0;
};

class Backend : public engine::DataPath {
 public:
  virtual Capabilities capabilities() const = 0;

  // Starts the operations, in their order; the Work ends when all have. Returned errors are the
  // caller's mistakes, and nothing of any call was sent.
  virtual Result<Work> submit(std::span<const Call> calls, const OperationOptions& options) = 0;

  // Refers to the backend, and must not outlive it.
  virtual Result<std::unique_ptr<Prepared>> prepare(std::span<const Call> calls,
                                                    const OperationOptions& options) = 0;

  // Communicator::add_plan(). kUnsupported: another library's backend has its own.
  virtual Status add_plan(const std::string& plan_file) = 0;

  // Lets operations progress, without blocking. Work::wait() does so by itself.
  virtual void progress() = 0;

  // Something is wrong with the group: a cause to end it, like those that the backend finds itself.
  virtual void report(const engine::Cause& cause) = 0;

  // Leaves the group: peers are told, what is in flight ends with kAborted, connections and memory
  // are given back. Idempotent. Operations may not be submitted any more. Returns the error with
  // which the group had ended where no Work has told it.
  virtual Status close() = 0;

  // Ok, or how the group has ended.
  virtual Status status() = 0;

  virtual size_t staging_bytes() = 0;
  virtual size_t link_bytes() = 0;
};

// One that works on the CPU's memory, and can be told to wait for it.
class HostBackend : public Backend {
 public:
  // What submit() would say of the call's arguments.
  virtual Status check(const Call& call) = 0;

  // The same as submit(), of operations that are numbered now and start once `gate` is open.
  virtual Result<Work> submit_when(std::span<const Call> calls,
                                   std::shared_ptr<const engine::Gate> gate,
                                   const OperationOptions& options) = 0;

  // Whether it takes the call's memory where it lies, which is on a GPU. The call was checked.
  virtual bool reaches_gpu(const Call& /*call*/) const { return false; }

  // Who makes a Work progress that waits for this backend's.
  virtual std::shared_ptr<engine::WorkDriver> driver() = 0;
};

}  // namespace ciuic::backend
