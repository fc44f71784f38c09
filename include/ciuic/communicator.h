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
#include <span>
#include <string>
#include <vector>

#include "ciuic/buffer.h"
#include "ciuic/call.h"
#include "ciuic/options.h"
#include "ciuic/persistent_operation.h"
#include "ciuic/status.h"
#include "ciuic/work.h"

namespace ciuic {

// Bytes that a communicator holds at this moment.
struct MemoryUsage {
  size_t staging = 0;   // early and reduced chunks, bounded by buffer_size
  size_t segments = 0;  // this rank's shared-memory segment
  size_t links = 0;     // buffers of connections
  size_t tensors = 0;   // of allocate(), by all of the process's communicators
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

  // The same of inputs that differ in size: rank r's has counts[r] elements, 0 or more. `counts` is
  // alike on all ranks; another one is kMismatch.
  Result<Work> all_gather_v(ConstBuffer input, MutableBuffer output, std::vector<int64_t> counts,
                            const OperationOptions& options = {});

  // Sets output[i] to input[rank * count + i] of all ranks, reduced by `op`; input holds size *
  // count elements. In place where output is this rank's part of input.
  Result<Work> reduce_scatter(ConstBuffer input, MutableBuffer output, ReduceOp op,
                              const OperationOptions& options = {});

  // The same in parts that differ in size: rank r's has counts[r] elements. `counts` is alike on
  // all ranks; another one is kMismatch.
  Result<Work> reduce_scatter_v(ConstBuffer input, std::vector<int64_t> counts,
                                MutableBuffer output, ReduceOp op,
                                const OperationOptions& options = {});

  // Sets output[r * count ...] to rank r's input[rank * count ...]. Both hold size * count elements
  // and are memory apart.
  Result<Work> all_to_all(ConstBuffer input, MutableBuffer output,
                          const OperationOptions& options = {});

  // The same in parts that differ in size: input_counts[r] elements go to rank r, after those for
  // lower ranks, and output_counts[r] come from there. What one gives and the other expects must be
  // the same, else kMismatch names both ranks and counts.
  Result<Work> all_to_all_v(ConstBuffer input, std::vector<int64_t> input_counts,
                            MutableBuffer output, std::vector<int64_t> output_counts,
                            const OperationOptions& options = {});

  // What all_gather gives, on rank `root` alone. Elsewhere `output` may be empty.
  Result<Work> gather(ConstBuffer input, MutableBuffer output, int root,
                      const OperationOptions& options = {});

  // `counts` is looked at on the root alone. What a rank gives and the root expects must be the
  // same, else kMismatch.
  Result<Work> gather_v(ConstBuffer input, MutableBuffer output, std::vector<int64_t> counts,
                        int root, const OperationOptions& options = {});

  // Sets output to input[rank * count ...] of rank `root`, where input holds size * count elements.
  // Elsewhere `input` may be empty. In place where the root's output is its part of its input.
  Result<Work> scatter(ConstBuffer input, MutableBuffer output, int root,
                       const OperationOptions& options = {});
  Result<Work> scatter_v(ConstBuffer input, std::vector<int64_t> counts, MutableBuffer output,
                         int root, const OperationOptions& options = {});

  // Ends when all ranks have called it.
  Result<Work> barrier(const OperationOptions& options = {});

  // Gives `input` to one recv on rank `destination` with the same tag, dtype and count (another
  // dtype or count is kMismatch and ends the group). Ends when the memory may be used again: up to
  // 16 KiB that need not wait for the recv, unless the rank sends to itself. Tags are 0 to kMaxTag.
  // Of two sends to one rank with one tag the first is received first; sends and collectives are
  // not in each other's way.
  Result<Work> send(ConstBuffer input, int destination, int tag = 0,
                    const OperationOptions& options = {});

  // Takes the first message from `source` with `tag`, or from kAnySource, or with kAnyTag. The
  // Work then says whose it was. A recv from any source ends with kPeerLost where a rank is lost.
  Result<Work> recv(MutableBuffer output, int source, int tag = 0,
                    const OperationOptions& options = {});

  // Several calls at once: one Work, which ends when all have. What is sent to each other by such
  // batches cannot deadlock, in whatever order it stands. A call that is refused refuses them all.
  Result<Work> submit(std::span<const Call> calls, const OperationOptions& options = {});
  Result<Work> submit(const Call& call, const OperationOptions& options = {}) {
    return submit(std::span(&call, 1), options);
  }

  // Calls that are checked and chosen now, to be started any number of times on the same memory,
  // which must live until the last of them has ended. The communicator must live longer.
  Result<PersistentOperation> persistent(std::span<const Call> calls,
                                         const OperationOptions& options = {});

  // Takes in a plan of the caller's: the JSON of a plan file (src/plan/plan_json.h; `ciuic plan
  // --export` writes one) with the plans of all ranks for this group's layout and one root. From
  // then on calls whose `algorithm` is its name are carried out by it. Nothing is sent.
  //   kInvalidArgument  not well formed, another layout, the name of one of the library's own, or
  //                     proved wrong: the message names rank, step and block
  // Ranks whose plans differ get kMismatch when they use them.
  Status add_plan(const std::string& plan_file);

  // Memory for a tensor, 64-byte aligned and not initialised, that ranks of the same host can read
  // where it lies: operations on it, or on a part of it, save a copy each way. Results are the
  // same. Any communicator of the process makes use of it. It is freed with the last shared_ptr,
  // which may outlive the communicator, and, as any tensor, after the operations on it.
  //   undefined  once an operation on it has ended with an error
  //   fork       a child shares it with its parent: each sees what the other writes
  //   kResource  not so much memory, with the number of bytes     kClosed  also in a forked child
  Result<std::shared_ptr<std::byte>> allocate(size_t bytes);

  // A communicator of some of the ranks, in the order of `ranks`: rank i of it is ranks[i] here.
  // Exactly these ranks call it, with the same list; blocks until they have. It lives and ends by
  // itself, has the options of this one, and needs no store.
  //   kInvalidArgument  a rank that is not in the group, is there twice, or is not this one
  //   kTimeout, ...     also end this group: its ranks no longer agree
  Result<std::unique_ptr<Communicator>> subgroup(std::span<const int> ranks,
                                                 int64_t timeout_ms = -1);

  // Cuts the group: ranks of one `color` (0 or more) are a communicator, in the order of `key`,
  // then of rank. Null where color is kNoColor. All ranks call it.
  Result<std::unique_ptr<Communicator>> split(int color, int key, int64_t timeout_ms = -1);
  static constexpr int kNoColor = -1;

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
