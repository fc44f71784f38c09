// SPDX-License-Identifier: Apache-2.0
// nccl.cc: NCCL's functions.

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "nccl/cuda.h"
#include "nccl/fake_nccl.h"
#include "nccl/operations.h"

using namespace ciuic::fake_nccl;  // NOLINT: the functions have C's names

struct UniqueId {
  char bytes[128];
};

FAKE_API int ncclGetVersion(int* number) {
  *number = version();
  return kSuccess;
}

FAKE_API const char* ncclGetErrorString(int code) {
  switch (code) {
    case kSuccess: return "no error";
    case kUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case kSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case kInternalError: return "internal error - please report this issue to the NCCL developers";
    case kInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case kInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case kRemoteError: return "remote process exited or there was a network error";
    case kInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}

FAKE_API const char* ncclGetLastError(void*) { return last_error(); }

FAKE_API int ncclGetUniqueId(UniqueId* id) {
  ciuic_fake_count("ncclGetUniqueId");
  const std::string name = Region::create();
  if (name.empty()) return fail(kSystemError, "no memory for a unique id");
  *id = {};
  std::memcpy(id->bytes, name.data(), name.size());
  return kSuccess;
}

// ---- communicators ----

// `body` of the communicator of a handle.
template <typename Body>
static int on_comm(const char* name, const void* handle, const Body& body) {
  ciuic_fake_count(name);
  const std::shared_ptr<Comm> comm = Comm::find(handle);
  if (comm == nullptr) return fail(kInvalidArgument, std::string(name) + " : comm is invalid");
  return body(comm);
}

FAKE_API int ncclCommInitRankConfig(void** made, int size, UniqueId id, int rank,
                                    const Config* config) {
  ciuic_fake_count("ncclCommInitRankConfig");
  *made = nullptr;
  if (is_in_group()) return fail(kInvalidUsage, "the fake cannot join in a group");
  bool blocks = true;
  int code = read_config(config, &blocks);
  if (code != kSuccess) return code;
  if (size < 1 || size > kMostRanks || rank < 0 || rank >= size) {
    return fail(kInvalidArgument,
                "Invalid rank requested : " + std::to_string(rank) + "/" + std::to_string(size));
  }
  const auto device = current_device();
  if (!device.has_value()) return fail(kUnhandledCudaError, "Cuda failure " + cuda_error());
  auto comm = std::make_shared<Comm>(rank, size, *device, blocks);
  const std::string name(id.bytes, strnlen(id.bytes, sizeof id.bytes));
  // The handle keeps it while it joins, so a plain pointer does.
  void* handle = Comm::keep(comm);
  code = comm->perform([own = comm.get(), name] { return own->join(name); });
  if (code == kSuccess || code == kInProgress) {
    *made = handle;
  } else {
    Comm::forget(handle);
  }
  return code;
}

FAKE_API int ncclCommInitRank(void** made, int size, UniqueId id, int rank) {
  return ncclCommInitRankConfig(made, size, id, rank, nullptr);
}

FAKE_API int ncclCommSplit(void* handle, int color, int key, void** made, const Config* config) {
  *made = nullptr;
  return on_comm("ncclCommSplit", handle, [&](const std::shared_ptr<Comm>& comm) {
    bool blocks = comm->is_blocking;
    int code = config == nullptr ? kSuccess : read_config(config, &blocks);
    if (code == kSuccess) code = comm->check_ready();
    if (code != kSuccess) return code;
    return comm->perform([=, own = comm.get()] {
      std::shared_ptr<Comm> child;
      std::string name;
      int result = own->split(color, key, blocks, &child, &name);
      if (result != kSuccess || child == nullptr) return result;
      result = child->join(name);
      if (result == kSuccess) *made = Comm::keep(child);
      return result;
    });
  });
}

FAKE_API int ncclCommFinalize(void* handle) {
  return on_comm("ncclCommFinalize", handle, [](const std::shared_ptr<Comm>& comm) {
    const int code = comm->check_ready();
    if (code != kSuccess) return code;
    return comm->perform([own = comm.get()] {
      own->wait_all();
      return kSuccess;
    });
  });
}

FAKE_API int ncclCommDestroy(void* handle) {
  return on_comm("ncclCommDestroy", handle, [&](const std::shared_ptr<Comm>& comm) {
    comm->wait_all();
    comm->abort();
    Comm::forget(handle);
    return kSuccess;
  });
}

FAKE_API int ncclCommAbort(void* handle) {
  return on_comm("ncclCommAbort", handle, [&](const std::shared_ptr<Comm>& comm) {
    comm->abort();
    Comm::forget(handle);
    return kSuccess;
  });
}

FAKE_API int ncclCommGetAsyncError(void* handle, int* code) {
  return on_comm("ncclCommGetAsyncError", handle, [&](const std::shared_ptr<Comm>& comm) {
    *code = comm->error();
    return kSuccess;
  });
}

FAKE_API int ncclCommCount(void* handle, int* size) {
  return on_comm("ncclCommCount", handle, [&](const std::shared_ptr<Comm>& comm) {
    *size = comm->size;
    return kSuccess;
  });
}

FAKE_API int ncclCommUserRank(void* handle, int* rank) {
  return on_comm("ncclCommUserRank", handle, [&](const std::shared_ptr<Comm>& comm) {
    *rank = comm->rank;
    return kSuccess;
  });
}

FAKE_API int ncclCommCuDevice(void* handle, int* device) {
  return on_comm("ncclCommCuDevice", handle, [&](const std::shared_ptr<Comm>& comm) {
    *device = comm->device;
    return kSuccess;
  });
}

FAKE_API int ciuic_fake_nccl_fail(void* handle, int code) {
  return on_comm("ciuic_fake_nccl_fail", handle, [&](const std::shared_ptr<Comm>& comm) {
    fail(code, "a test wants it");
    comm->set_error(code);
    return kSuccess;
  });
}

// ---- reductions ----

FAKE_API int ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence,
                                      void* handle) {
  return on_comm("ncclRedOpCreatePreMulSum", handle, [&](const std::shared_ptr<Comm>& comm) -> int {
    if (type < 0 || type >= kTypes) return fail(kInvalidArgument, "invalid type of a scalar");
    if (residence != kScalarHostImmediate) {
      return fail(kInvalidArgument, "the fake knows scalars of the host alone");
    }
    Reduction reduction = {.op = kSum, .is_scaled = true};
    std::memcpy(reduction.scalar, scalar, size_of(type));
    *op = comm->add_op(reduction);
    return kSuccess;
  });
}

FAKE_API int ncclRedOpDestroy(int op, void* handle) {
  return on_comm("ncclRedOpDestroy", handle, [&](const std::shared_ptr<Comm>& comm) -> int {
    if (comm->remove_op(op)) return kSuccess;
    return fail(kInvalidArgument,
                "ncclRedOpDestroy : operator " + std::to_string(op) + " is none that was made");
  });
}

// ---- operations ----

FAKE_API int ncclGroupStart() {
  ciuic_fake_count("ncclGroupStart");
  return group_start();
}

FAKE_API int ncclGroupEnd() {
  ciuic_fake_count("ncclGroupEnd");
  return group_end();
}

FAKE_API int ncclAllReduce(const void* input, void* output, size_t count, int type, int op,
                           void* comm, void* stream) {
  return submit("ncclAllReduce", comm,
                {.kind = Kind::kAllReduce,
                 .input = input,
                 .output = output,
                 .count = count,
                 .type = type,
                 .op = op,
                 .stream = stream});
}

FAKE_API int ncclReduce(const void* input, void* output, size_t count, int type, int op, int root,
                        void* comm, void* stream) {
  return submit("ncclReduce", comm,
                {.kind = Kind::kReduce,
                 .input = input,
                 .output = output,
                 .count = count,
                 .type = type,
                 .op = op,
                 .peer = root,
                 .stream = stream});
}

FAKE_API int ncclBroadcast(const void* input, void* output, size_t count, int type, int root,
                           void* comm, void* stream) {
  return submit("ncclBroadcast", comm,
                {.kind = Kind::kBroadcast,
                 .input = input,
                 .output = output,
                 .count = count,
                 .type = type,
                 .peer = root,
                 .stream = stream});
}

FAKE_API int ncclAllGather(const void* input, void* output, size_t count, int type, void* comm,
                           void* stream) {
  return submit("ncclAllGather", comm,
                {.kind = Kind::kAllGather,
                 .input = input,
                 .output = output,
                 .count = count,
                 .type = type,
                 .stream = stream});
}

FAKE_API int ncclReduceScatter(const void* input, void* output, size_t count, int type, int op,
                               void* comm, void* stream) {
  return submit("ncclReduceScatter", comm,
                {.kind = Kind::kReduceScatter,
                 .input = input,
                 .output = output,
                 .count = count,
                 .type = type,
                 .op = op,
                 .stream = stream});
}

FAKE_API int ncclSend(const void* input, size_t count, int type, int peer, void* comm,
                      void* stream) {
  return submit("ncclSend", comm,
                {.kind = Kind::kSend,
                 .input = input,
                 .count = count,
                 .type = type,
                 .peer = peer,
                 .stream = stream});
}

FAKE_API int ncclRecv(void* output, size_t count, int type, int peer, void* comm, void* stream) {
  return submit("ncclRecv", comm,
                {.kind = Kind::kReceive,
                 .output = output,
                 .count = count,
                 .type = type,
                 .peer = peer,
                 .stream = stream});
}
