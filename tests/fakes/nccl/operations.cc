// SPDX-License-Identifier: Apache-2.0
// operations.cc: what is checked, how groups are put on streams, and what then runs there.

#include "nccl/operations.h"

#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cudart/fake_cuda.h"
#include "nccl/cuda.h"
#include "nccl/exchange.h"

namespace ciuic::fake_nccl {

static constexpr int kFloat8Version = 22400;
static constexpr int kFloat8Capability = 90;

// ---- checks ----

static int bad_pointer(const char* name, const char* buffer, const void* pointer) {
  char text[160];
  std::snprintf(text, sizeof text, "%s : %s %p is not a valid pointer", name, buffer, pointer);
  return fail(kInvalidArgument, text);
}

// Elements that it reads and writes on this rank.
static std::pair<size_t, size_t> counts_of(const Comm& comm, const Operation& all) {
  const size_t total = all.count * static_cast<size_t>(comm.size);
  const bool is_root = all.peer == comm.rank;
  switch (all.kind) {
    case Kind::kAllReduce: return {all.count, all.count};
    case Kind::kReduce: return {all.count, is_root ? all.count : 0};
    case Kind::kBroadcast: return {is_root ? all.count : 0, all.count};
    case Kind::kAllGather: return {all.count, total};
    case Kind::kReduceScatter: return {total, all.count};
    case Kind::kSend: return {all.count, 0};
    default: return {0, all.count};
  }
}

static bool reduces(Kind kind) {
  return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
}

static int check(const char* name, Comm& comm, Operation* all) {
  if (all->peer < 0 || all->peer >= comm.size) {
    return fail(kInvalidArgument, std::string(name) + " : invalid root " +
                                      std::to_string(all->peer) + " (root should be in the 0.." +
                                      std::to_string(comm.size) + " range)");
  }
  const int types = version() < kFloat8Version ? kFirstFloat8 : kTypes;
  if (all->type < 0 || all->type >= types) {
    return fail(kInvalidArgument,
                std::string(name) + " : invalid type " + std::to_string(all->type));
  }
  if (all->type >= kFirstFloat8 && reduces(all->kind) &&
      capability_of(comm.device) < kFloat8Capability) {
    return fail(kInvalidArgument, "FP8 reduction support begins with sm90 capable devices.");
  }
  const std::optional<Reduction> reduction = comm.op(all->op);
  if (!reduction.has_value()) {
    return fail(kInvalidArgument, std::string(name) + " : reduction operation " +
                                      std::to_string(all->op) + " unknown to this communicator");
  }
  all->reduction = *reduction;
  const auto [inputs, outputs] = counts_of(comm, *all);
  if (inputs > 0) {
    all->from = bytes_of(all->input, inputs * size_of(all->type), comm.device);
    if (all->from == nullptr) return bad_pointer(name, "sendbuff", all->input);
  }
  if (outputs > 0) {
    all->to = bytes_of(all->output, outputs * size_of(all->type), comm.device);
    if (all->to == nullptr) return bad_pointer(name, "recvbuff", all->output);
  }
  const OnDevice on(comm.device);
  if (ciuic_fake_stream_device(all->stream) == comm.device) return kSuccess;
  return fail(kUnhandledCudaError, "Cuda failure 'invalid resource handle'");
}

// ---- what runs on a stream ----

namespace {

// Work of one communicator: what was in a group, or one operation.
class Launch {
 public:
  Launch(std::shared_ptr<Comm> comm, std::vector<Operation> operations)
      : comm_(std::move(comm)), operations_(std::move(operations)) {}

  const Comm& comm() const { return *comm_; }
  int put_on_streams();

 private:
  static void run_and_free(void* launch) {
    const std::unique_ptr<Launch> own(static_cast<Launch*>(launch));
    if (own->comm_->wait_turn(own->number_)) own->run();
    own->comm_->end(own->number_);
  }

  void run();
  bool run_collective(const Operation& all);
  bool run_reduction(const Operation& all);
  bool run_messages(const std::vector<Message>& sends, const std::vector<Message>& receives);

  std::shared_ptr<Comm> comm_;
  std::vector<Operation> operations_;
  uint64_t number_ = 0;
};

int Launch::put_on_streams() {
  const std::shared_ptr<Comm> comm = comm_;  // this is freed when it has run
  const std::lock_guard lock(comm->launch_mutex);
  const OnDevice on(comm->device);
  void* first = operations_.front().stream;
  std::set<void*> others;
  for (const Operation& all : operations_) others.insert(all.stream);
  others.erase(first);
  for (void* other : others) ciuic_fake_join(other, first);
  number_ = comm->begin();
  const uint64_t number = number_;
  if (ciuic_fake_enqueue(first, run_and_free, this) != 0) {
    comm->end(number);
    delete this;
    return fail(kUnhandledCudaError, "Cuda failure " + cuda_error());
  }
  for (void* other : others) ciuic_fake_join(first, other);
  return kSuccess;
}

// Collectives first, one after another; then all messages together.
void Launch::run() {
  std::vector<Message> sends;
  std::vector<Message> receives;
  const auto kind = static_cast<uint32_t>(Kind::kSend);
  for (const Operation& all : operations_) {
    const size_t bytes = all.count * size_of(all.type);
    if (all.kind == Kind::kSend) {
      sends.push_back({.peer = all.peer, .bytes = all.from, .size = bytes, .kind = kind});
    } else if (all.kind == Kind::kReceive) {
      receives.push_back({.peer = all.peer, .bytes = all.to, .size = bytes, .kind = kind});
    } else if (!run_collective(all)) {
      return;
    }
  }
  run_messages(sends, receives);
}

bool Launch::run_messages(const std::vector<Message>& sends, const std::vector<Message>& receives) {
  if (sends.empty() && receives.empty()) return true;
  Comm& comm = *comm_;
  const Exchange with = {
      .region = comm.region(),
      .rank = comm.rank,
      .size = comm.size,
      .is_stopped = [&comm] { return comm.is_aborted(); },
      .on_death =
          [&comm](int peer) {
            if (comm.error() == kRemoteError) return;
            comm.set_error(fail(kRemoteError, "rank " + std::to_string(peer) + " is gone"));
          },
  };
  return exchange(with, sends, receives);
}

// False: aborted.
bool Launch::run_collective(const Operation& all) {
  const size_t bytes = all.count * size_of(all.type);
  const auto kind = static_cast<uint32_t>(all.kind);
  const auto rank = static_cast<size_t>(comm_->rank);
  std::vector<Message> sends;
  std::vector<Message> receives;
  const bool is_root = comm_->rank == all.peer;
  switch (all.kind) {
    case Kind::kBroadcast:
      for (int peer = 0; peer < comm_->size; ++peer) {
        if (!is_root || peer == comm_->rank) continue;
        sends.push_back({.peer = peer, .bytes = all.from, .size = bytes, .kind = kind});
      }
      if (is_root) {
        std::memmove(all.to, all.from, bytes);
      } else {
        receives.push_back({.peer = all.peer, .bytes = all.to, .size = bytes, .kind = kind});
      }
      return run_messages(sends, receives);
    case Kind::kAllGather:
      std::memmove(all.to + rank * bytes, all.from, bytes);
      for (int peer = 0; peer < comm_->size; ++peer) {
        if (peer == comm_->rank) continue;
        std::byte* from = all.to + rank * bytes;
        std::byte* to = all.to + static_cast<size_t>(peer) * bytes;
        sends.push_back({.peer = peer, .bytes = from, .size = bytes, .kind = kind});
        receives.push_back({.peer = peer, .bytes = to, .size = bytes, .kind = kind});
      }
      return run_messages(sends, receives);
    default: return run_reduction(all);
  }
}

// Each that gets a result gets the inputs of all, and folds them itself.
bool Launch::run_reduction(const Operation& all) {
  const size_t bytes = all.count * size_of(all.type);
  const auto kind = static_cast<uint32_t>(all.kind);
  const bool scatters = all.kind == Kind::kReduceScatter;
  const bool gets = all.kind != Kind::kReduce || comm_->rank == all.peer;
  const auto block = [&](int rank) {
    return all.from + (scatters ? static_cast<size_t>(rank) * bytes : 0);
  };
  std::vector<std::vector<std::byte>> arrived(static_cast<size_t>(comm_->size));
  std::vector<const std::byte*> inputs;
  std::vector<Message> sends;
  std::vector<Message> receives;
  for (int peer = 0; peer < comm_->size; ++peer) {
    if (peer == comm_->rank) {
      inputs.push_back(block(peer));
      continue;
    }
    if (all.kind != Kind::kReduce || peer == all.peer) {
      sends.push_back({.peer = peer, .bytes = block(peer), .size = bytes, .kind = kind});
    }
    if (!gets) continue;
    std::vector<std::byte>& space = arrived[static_cast<size_t>(peer)];
    space.resize(bytes);
    inputs.push_back(space.data());
    receives.push_back({.peer = peer, .bytes = space.data(), .size = bytes, .kind = kind});
  }
  if (!run_messages(sends, receives)) return false;
  if (gets) reduce(all.type, all.reduction, inputs, all.count, all.to);
  return true;
}

// ---- groups ----

struct Pending {
  std::shared_ptr<Comm> comm;
  std::vector<Operation> operations;
};

struct Group {
  int depth = 0;
  int error = kSuccess;
  std::vector<Pending> pending;
};

thread_local Group group;

int launch(std::shared_ptr<Comm> comm, std::vector<Operation> operations) {
  if (operations.empty()) return kSuccess;
  Comm& own = *comm;
  return own.perform([comm = std::move(comm), operations = std::move(operations)]() mutable {
    auto* work = new Launch(std::move(comm), std::move(operations));
    return work->put_on_streams();
  });
}

}  // namespace

int submit(const char* name, const void* handle, Operation operation) {
  ciuic_fake_count(name);
  const std::shared_ptr<Comm> comm = Comm::find(handle);
  int code = comm == nullptr ? fail(kInvalidArgument, std::string(name) + " : comm is invalid")
                             : comm->check_ready();
  if (code == kSuccess) code = check(name, *comm, &operation);
  if (group.depth == 0) {
    if (code != kSuccess || operation.count == 0) return code;
    return launch(comm, {std::move(operation)});
  }
  if (code != kSuccess) {
    if (group.error == kSuccess) group.error = code;
    return code;
  }
  if (operation.count == 0) return kSuccess;
  for (Pending& pending : group.pending) {
    if (pending.comm != comm) continue;
    pending.operations.push_back(std::move(operation));
    return kSuccess;
  }
  group.pending.push_back({comm, {std::move(operation)}});
  return kSuccess;
}

int group_start() {
  ++group.depth;
  return kSuccess;
}

int group_end() {
  if (group.depth == 0) {
    return fail(kInvalidUsage, "ncclGroupEnd: not in a group call.");
  }
  if (--group.depth > 0) return kSuccess;
  const Group ended = std::exchange(group, {});
  int result = ended.error;
  if (result != kSuccess) return result;
  for (const Pending& pending : ended.pending) {
    const int code = launch(pending.comm, pending.operations);
    if (result == kSuccess) result = code;
  }
  return result;
}

bool is_in_group() { return group.depth > 0; }

}  // namespace ciuic::fake_nccl
