// SPDX-License-Identifier: Apache-2.0
// communicator.h: a fixed group of ranks that run collective operations together. Start here.
//
// An operation checks its arguments and returns a Work; Work::wait() drives the engine itself.
// All ranks call the same operations in the same order. Any thread may call; threads that call
// at once must agree on that order among themselves.
//
// For every operation:
//   returned     kInvalidArgument, kUnsupported, kClosed; nothing was sent.
//   on the Work  kMismatch, kTimeout, kPeerLost, kAborted; the output is undefined and the
//                communicator has ended: it takes no more operations. All ranks get the same
//                error, those whose own operation had ended well at their next call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ciuic/buffer.h"
#include "ciuic/options.h"
#include "ciuic/status.h"
#include "ciuic/work.h"

namespace ciuic {

// Bytes that a communicator holds at this moment.
struct MemoryUsage {
  size_t staging = 0;   // early and reduced chunks, bounded by buffer_size
  size_t segments = 0;  // this rank's shared-memory segment
  size_t links = 0;     // buffers of connections
};

class CIUIC_EXPORT Communicator {
 public:
  // Joins the group and returns when all ranks have; blocks for options.timeout_ms at most.
  // kInvalidArgument: rank outside [0, size), no place to meet. kMismatch: a world size, version or
  // option that other ranks do not share, or a rank that is there twice; on every rank concerned.
  // kTimeout: the message names the ranks that did not come. kPermission: another secret.
  static Result<std::unique_ptr<Communicator>> create(const CommunicatorOptions& options);

  ~Communicator();  // What is in flight ends with kAborted. Does not wait for peers.

  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int size() const;

  // Sets output[i] to input[i] of all ranks, reduced by `op`. All ranks get the same bits.
  //
  // Both hold `count` elements of one dtype, alike on every rank, and live until the Work ends.
  // In place where they are the same memory; overlapping in part is kInvalidArgument.
  Result<Work> all_reduce(ConstBuffer input, MutableBuffer output, ReduceOp op,
                          const OperationOptions& options = {});

  // The same result on rank `root` alone. Elsewhere `output` may be empty and is not touched.
  Result<Work> reduce(ConstBuffer input, MutableBuffer output, ReduceOp op, int root,
                      const OperationOptions& options = {});

  // Overwrites `buffer` with that of rank `root`.
  Result<Work> broadcast(MutableBuffer buffer, int root, const OperationOptions& options = {});

  // Sets output[r * count ...] to rank r's `count` elements of input; output holds size * count.
  // In place where input is this rank's part of output.
  Result<Work> all_gather(ConstBuffer input, MutableBuffer output,
                          const OperationOptions& options = {});

  // Ends when all ranks have called it.
  Result<Work> barrier(const OperationOptions& options = {});

  // Ends the group on every rank: operations that have not ended do so with kAborted and `reason`,
  // as does every later one. For any thread, also while others wait; does not wait itself.
  // Idempotent, and without effect where the group has ended already. kClosed: in a forked child.
  Status abort(const std::string& reason = "");

  // A new group of those ranks that are not gone, in their old order, with an epoch of its own;
  // this one ends with kAborted where it has not ended yet. All survivors call it, and nobody is
  // left out for being late: a rank that neither calls it nor is known to be gone (its process has
  // ended, or the group ended because it was silent) ends it with kTimeout on all, and is named.
  // Needs no store, and no rank 0. Blocks for `timeout_ms` at most (-1: the communicator's).
  //   kPeerLost  the others have given this rank up     kClosed  this one is closed, or forked
  Result<std::unique_ptr<Communicator>> shrink(int64_t timeout_ms = -1);

  // Ok, or the error with which the group has ended. kClosed: this rank has closed it.
  Status status() const;

  // Ends what is in flight with kAborted and takes no more; tells the peers, and does not wait for
  // them. Idempotent. Returns the error with which the group had ended where no Work has told it,
  // and shrink() was not called.
  Status close();

  MemoryUsage memory_usage() const;

  // One JSON object: backend, ranks, hosts, transports, interface, store, settings, and more.
  std::string describe() const;

  struct State;  // src/communicator/state.h

 private:
  explicit Communicator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ciuic
