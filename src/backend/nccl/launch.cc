// SPDX-License-Identifier: Apache-2.0
// launch.cc: what is refused, what is copied, and what NCCL is called for.

#include "backend/nccl/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/assert.h"
#include "collective/prepare.h"
#include "plan/registry.h"

namespace ciuic::backend {

namespace {

using Counts = std::vector<int64_t>;

constexpr int kFloat8Capability = 90;  // below it NCCL moves them only

// Bytes to a rank, or from it.
struct Transfer {
  int peer = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;
};

// Of all calls, in their order.
struct Transfers {
  std::vector<Transfer> sends;
  std::vector<Transfer> receives;
};

const std::byte* input_of(const Call& call) {
  return static_cast<const std::byte*>(call.input.data);
}
std::byte* output_of(const Call& call) { return static_cast<std::byte*>(call.output.data); }

// Elements for one rank: `counts` where they are uneven.
size_t bytes_for(const Call& call, const Counts& counts, int rank, int64_t count, DataType dtype) {
  const int64_t elements = call.uneven ? counts[static_cast<size_t>(rank)] : count;
  return static_cast<size_t>(elements) * size_of(dtype);
}

void add_send(Transfers* all, int peer, const std::byte* data, size_t bytes) {
  if (bytes > 0) all->sends.push_back({peer, const_cast<std::byte*>(data), bytes});
}

void add_receive(Transfers* all, int peer, std::byte* data, size_t bytes) {
  if (bytes > 0) all->receives.push_back({peer, data, bytes});
}

// A block for each rank, or from each.
void add_all_sends(Transfers* all, const Call& call, int size) {
  const std::byte* from = input_of(call);
  for (int peer = 0; peer < size; ++peer) {
    const size_t bytes =
        bytes_for(call, call.input_counts, peer, call.input.count / size, call.input.dtype);
    add_send(all, peer, from, bytes);
    from += bytes;
  }
}

void add_all_receives(Transfers* all, const Call& call, int size) {
  std::byte* to = output_of(call);
  for (int peer = 0; peer < size; ++peer) {
    const size_t bytes =
        bytes_for(call, call.output_counts, peer, call.output.count / size, call.output.dtype);
    add_receive(all, peer, to, bytes);
    to += bytes;
  }
}

// Of the operations that NCCL has no call for.
void add_transfers(const NcclPlace& place, const Call& call, Transfers* all) {
  const bool is_root = place.rank == call.root;
  switch (call.operation) {
    case Operation::kAllToAll:
      add_all_sends(all, call, place.size);
      add_all_receives(all, call, place.size);
      break;
    case Operation::kGather:
      add_send(all, call.root, input_of(call), call.input.bytes());
      if (is_root) add_all_receives(all, call, place.size);
      break;
    case Operation::kScatter:
      if (is_root) add_all_sends(all, call, place.size);
      add_receive(all, call.root, output_of(call), call.output.bytes());
      break;
    case Operation::kSend: add_send(all, call.peer, input_of(call), call.input.bytes()); break;
    case Operation::kRecv: add_receive(all, call.peer, output_of(call), call.output.bytes()); break;
    default: break;
  }
}

bool has_transfers(Operation operation) {
  return operation == Operation::kAllToAll || operation == Operation::kGather ||
         operation == Operation::kScatter || operation >= Operation::kSend;
}

// NCCL's words for one of our reductions.
struct Reduction {
  int type = 0;
  int op = 0;
  bool averages = false;                  // by an op that is made for the communicator
  DataType element = DataType::kFloat32;  // of that op
  int64_t elements = 1;                   // in one of ours
};

bool is_integer(DataType dtype) { return DataType::kInt32 <= dtype && dtype < DataType::kBool; }

std::optional<int> op_of_bool(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBOr: return nccl::kMax;
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBAnd: return nccl::kMin;
    default: return std::nullopt;
  }
}

bool is_float8(DataType dtype) {
  return dtype == DataType::kFloat8E4M3FN || dtype == DataType::kFloat8E5M2;
}

std::optional<Reduction> reduction_of(const NcclPlace& place, DataType dtype, ReduceOp op) {
  if (is_float8(dtype) && place.capability < kFloat8Capability) return std::nullopt;
  if (dtype == DataType::kBool) {
    const std::optional<int> of_bool = op_of_bool(op);
    if (!of_bool) return std::nullopt;
    return Reduction{.type = nccl::kTypeUint8, .op = *of_bool, .element = dtype};
  }
  const bool is_complex = dtype == DataType::kComplex64 || dtype == DataType::kComplex128;
  const bool averages = op == ReduceOp::kAvg && !is_integer(dtype);
  if (is_complex && op != ReduceOp::kSum && op != ReduceOp::kAvg) return std::nullopt;
  if (dtype == DataType::kComplex64) dtype = DataType::kFloat32;
  if (dtype == DataType::kComplex128) dtype = DataType::kFloat64;
  const std::optional<int> type = nccl::type_of(dtype, place.version);
  const std::optional<int> of_op = nccl::op_of(op);
  if (!type || (!of_op && !averages)) return std::nullopt;
  return Reduction{.type = *type,
                   .op = of_op.value_or(0),
                   .averages = averages,
                   .element = dtype,
                   .elements = is_complex ? 2 : 1};
}

// Why there is none.
std::string lack_of(const NcclPlace& place, DataType dtype, ReduceOp op) {
  if (dtype == DataType::kInt16 || dtype == DataType::kUInt16) {
    return fmt::format("NCCL does not reduce {}; give it as int32", name_of(dtype));
  }
  if (!nccl::op_of(op)) {
    return fmt::format("NCCL has no {}; its ops are sum, avg, min, max and product", name_of(op));
  }
  if (is_float8(dtype) && nccl::type_of(dtype, place.version)) {
    return fmt::format(
        "NCCL reduces {} on GPUs of compute capability 9.0 and above, and one here "
        "has {}.{}",
        name_of(dtype), place.capability / 10, place.capability % 10);
  }
  if (is_float8(dtype)) {
    return fmt::format("NCCL {} does not reduce {}, as 2.24 and later do",
                       nccl::version_text(place.version), name_of(dtype));
  }
  return fmt::format("NCCL has no {} of {}", name_of(op), name_of(dtype));
}

Status check_call(const NcclPlace& place, const Call& call) {
  const char* name = collective::name_of(call);
  if (call.operation == Operation::kRecv && call.peer == kAnySource) {
    return {StatusCode::kUnsupported,
            fmt::format("{}: NCCL receives from one rank that is named, and not from any; name it, "
                        "or take backend=\"native\". Nothing was sent.",
                        name)};
  }
  if (call.operation == Operation::kAllToAll && call.uneven) {
    const auto own = static_cast<size_t>(place.rank);
    if (call.input_counts[own] != call.output_counts[own]) {
      return {StatusCode::kInvalidArgument,
              fmt::format("{}: this rank sends {} elements to itself and expects {} of itself. "
                          "Nothing was sent.",
                          name, call.input_counts[own], call.output_counts[own])};
    }
  }
  if (can_reduce(place, call)) return {};
  return {StatusCode::kUnsupported,
          fmt::format("{}: {}, or {}. Nothing was sent.", name,
                      lack_of(place, call.input.dtype, call.op),
                      place.has_other ? "call it by itself, by which it goes by way of the host"
                                      : "take backend=\"auto\" or \"native\"")};
}

// A message to itself is a copy, for which both ends must be known.
Status check_own_messages(const NcclPlace& place, std::span<const Call> calls) {
  std::vector<const Call*> sends;
  std::vector<const Call*> receives;
  for (const Call& call : calls) {
    if (call.operation < Operation::kSend || call.peer != place.rank) continue;
    (call.operation == Operation::kSend ? sends : receives).push_back(&call);
  }
  if (sends.size() != receives.size()) {
    return {StatusCode::kUnsupported,
            fmt::format("{}: rank {} is this one, and NCCL wants both ends of a message to itself "
                        "in one call of submit() (coalesce() in Python). Nothing was sent.",
                        sends.size() > receives.size() ? "send" : "recv", place.rank)};
  }
  for (size_t i = 0; i < sends.size(); ++i) {
    const ConstBuffer& sent = sends[i]->input;
    const MutableBuffer& received = receives[i]->output;
    if (sent.dtype == received.dtype && sent.count == received.count) continue;
    return {StatusCode::kInvalidArgument,
            fmt::format("recv: expects {} elements of {}, and this rank sends itself {} of {}; a "
                        "send and its recv must have the same dtype and count. Nothing was sent.",
                        received.count, name_of(received.dtype), sent.count, name_of(sent.dtype))};
  }
  return {};
}

// One launch() on its way.
class Launch {
 public:
  Launch(const NcclPlace& place, NcclComm* comm)
      : place_(place), comm_(*comm), cuda_(*comm->options().cuda), stream_(comm->stream()) {}

  Status run(std::span<const Call> calls);

 private:
  Status copy(void* target, const void* source, size_t bytes);
  Status copy_alone(const Call& call);
  Status copy_own(const Transfers& transfers);
  Status prepare(std::span<const Call> calls);
  Status issue(std::span<const Call> calls, nccl::Comm comm);
  Status issue(const Call& call, nccl::Comm comm);
  Status issue_move(const Call& call, nccl::Comm comm);
  Status issue_reduction(const Call& call, nccl::Comm comm);
  Status issue_transfers(const Transfers& transfers, nccl::Comm comm);
  Status error(const char* what, int code, nccl::Comm comm) const {
    return nccl::error_of(nccl(), what, code, comm);
  }
  const nccl::Functions& nccl() const { return comm_.options().nccl->functions; }

  const NcclPlace& place_;
  NcclComm& comm_;
  const cuda::Functions& cuda_;
  const cuda::Stream stream_;
  Transfers blocks_;
  Transfers messages_;
  std::array<int, kDataTypes> averages_{};
};

Status Launch::copy(void* target, const void* source, size_t bytes) {
  if (bytes == 0 || target == source) return {};
  const int code = cuda_.memcpy_async(target, source, bytes, cuda::kDeviceToDevice, stream_);
  return cuda::error_of(cuda_, "cudaMemcpyAsync", code);
}

// All that one rank does.
Status Launch::copy_alone(const Call& call) {
  if (has_transfers(call.operation) || call.operation == Operation::kBarrier) return {};
  return copy(call.output.data, call.input.data, call.output.bytes());
}

// What comes from this rank is what goes to it, in the same order.
Status Launch::copy_own(const Transfers& transfers) {
  auto sent = transfers.sends.begin();
  const auto is_own = [this](const Transfer& each) { return each.peer == place_.rank; };
  for (const Transfer& received : transfers.receives) {
    if (!is_own(received)) continue;
    sent = std::find_if(sent, transfers.sends.end(), is_own);
    CIUIC_ASSERT(sent != transfers.sends.end() && sent->bytes == received.bytes);
    CIUIC_RETURN_IF_ERROR(copy(received.data, sent->data, received.bytes));
    ++sent;
  }
  return {};
}

Status Launch::issue_move(const Call& call, nccl::Comm comm) {
  const auto* input = input_of(call);
  std::byte* output = output_of(call);
  constexpr int kType = nccl::kTypeUint8;
  if (call.operation == Operation::kBroadcast) {
    const int code =
        nccl().broadcast(input, output, call.output.bytes(), kType, call.root, comm, stream_);
    return error("ncclBroadcast", code, comm);
  }
  if (!call.uneven) {
    return error("ncclAllGather",
                 nccl().all_gather(input, output, call.input.bytes(), kType, comm, stream_), comm);
  }
  for (int root = 0; root < place_.size; ++root) {
    const size_t bytes = bytes_for(call, call.output_counts, root, 0, call.output.dtype);
    if (bytes > 0) {
      const void* from = root == place_.rank ? input : output;
      const int code = nccl().broadcast(from, output, bytes, kType, root, comm, stream_);
      CIUIC_RETURN_IF_ERROR(error("ncclBroadcast", code, comm));
    }
    output += bytes;
  }
  return {};
}

Status Launch::issue_reduction(const Call& call, nccl::Comm comm) {
  const Reduction reduction = *reduction_of(place_, call.input.dtype, call.op);
  const int op =
      reduction.averages ? averages_[static_cast<size_t>(reduction.element)] : reduction.op;
  const int type = reduction.type;
  const auto elements = [&](int64_t count) {
    return static_cast<size_t>(count * reduction.elements);
  };
  const auto* input = input_of(call);
  std::byte* output = output_of(call);
  if (call.operation == Operation::kAllReduce) {
    const int code =
        nccl().all_reduce(input, output, elements(call.input.count), type, op, comm, stream_);
    return error("ncclAllReduce", code, comm);
  }
  if (call.operation == Operation::kReduce) {
    const int code = nccl().reduce(input, output, elements(call.input.count), type, op, call.root,
                                   comm, stream_);
    return error("ncclReduce", code, comm);
  }
  if (!call.uneven) {
    const int code =
        nccl().reduce_scatter(input, output, elements(call.output.count), type, op, comm, stream_);
    return error("ncclReduceScatter", code, comm);
  }
  for (int root = 0; root < place_.size; ++root) {
    const int64_t count = call.input_counts[static_cast<size_t>(root)];
    if (count > 0) {
      std::byte* to = root == place_.rank ? output : nullptr;
      const int code = nccl().reduce(input, to, elements(count), type, op, root, comm, stream_);
      CIUIC_RETURN_IF_ERROR(error("ncclReduce", code, comm));
    }
    input += static_cast<size_t>(count) * size_of(call.input.dtype);
  }
  return {};
}

// Nothing is not sent: all ranks know alike that it is.
Status Launch::issue(const Call& call, nccl::Comm comm) {
  if (has_transfers(call.operation)) return {};
  const bool gathers = call.operation == Operation::kAllGather;
  if ((gathers ? call.output.count : call.input.count) == 0) return {};
  return plan::reduces(call.operation) ? issue_reduction(call, comm) : issue_move(call, comm);
}

Status Launch::issue_transfers(const Transfers& transfers, nccl::Comm comm) {
  constexpr int kType = nccl::kTypeUint8;
  for (const Transfer& each : transfers.sends) {
    if (each.peer == place_.rank) continue;
    const int code = nccl().send(each.data, each.bytes, kType, each.peer, comm, stream_);
    CIUIC_RETURN_IF_ERROR(error("ncclSend", code, comm));
  }
  for (const Transfer& each : transfers.receives) {
    if (each.peer == place_.rank) continue;
    const int code = nccl().recv(each.data, each.bytes, kType, each.peer, comm, stream_);
    CIUIC_RETURN_IF_ERROR(error("ncclRecv", code, comm));
  }
  return {};
}

Status Launch::issue(std::span<const Call> calls, nccl::Comm comm) {
  for (const Call& call : calls) CIUIC_RETURN_IF_ERROR(issue(call, comm));
  CIUIC_RETURN_IF_ERROR(issue_transfers(blocks_, comm));
  return issue_transfers(messages_, comm);
}

// Ops are made outside of a group.
Status Launch::prepare(std::span<const Call> calls) {
  for (const Call& call : calls) {
    add_transfers(place_, call, call.operation >= Operation::kSend ? &messages_ : &blocks_);
    if (!plan::reduces(call.operation) || place_.size == 1) continue;
    const auto reduction = reduction_of(place_, call.input.dtype, call.op);
    if (!reduction->averages) continue;
    Result<int> op = comm_.average(reduction->element);
    if (!op.ok()) return op.status();
    averages_[static_cast<size_t>(reduction->element)] = *op;
  }
  return {};
}

Status Launch::run(std::span<const Call> calls) {
  CIUIC_RETURN_IF_ERROR(prepare(calls));
  CIUIC_RETURN_IF_ERROR(copy_own(blocks_));
  CIUIC_RETURN_IF_ERROR(copy_own(messages_));
  if (place_.size > 1) {
    return comm_.issue([&](nccl::Comm comm) { return issue(calls, comm); });
  }
  for (const Call& call : calls) CIUIC_RETURN_IF_ERROR(copy_alone(call));
  return {};
}

}  // namespace

bool can_reduce(const NcclPlace& place, const Call& call) {
  return place.size == 1 || !plan::reduces(call.operation) ||
         reduction_of(place, call.input.dtype, call.op);
}

Status check_calls(const NcclPlace& place, std::span<const Call> calls) {
  for (const Call& call : calls) CIUIC_RETURN_IF_ERROR(check_call(place, call));
  return check_own_messages(place, calls);
}

Status launch(const NcclPlace& place, std::span<const Call> calls, NcclComm* comm) {
  const cuda::DeviceScope scope(*comm->options().cuda, comm->options().device);
  return Launch(place, comm).run(calls);
}

}  // namespace ciuic::backend
