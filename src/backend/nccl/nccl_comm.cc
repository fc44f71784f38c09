// SPDX-License-Identifier: Apache-2.0
// nccl_comm.cc: begins, asks, aborts.

#include "backend/nccl/nccl_comm.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/log.h"
#include "kernels/float8.h"
#include "kernels/half.h"

namespace ciuic::backend {

static constexpr std::chrono::microseconds kSleep{200};

Result<std::unique_ptr<NcclComm>> NcclComm::create(const Options& options) {
  std::unique_ptr<NcclComm> comm(new NcclComm(options));
  const cuda::DeviceScope scope(*options.cuda, options.device);
  const int code = options.cuda->stream_create_with_flags(&comm->stream_, cuda::kNonBlocking);
  CIUIC_RETURN_IF_ERROR(cuda::error_of(*options.cuda, "cudaStreamCreateWithFlags", code));
  return comm;
}

NcclComm::~NcclComm() {
  abort();
  if (stream_ == nullptr) return;
  const cuda::DeviceScope scope(*options_.cuda, options_.device);
  (void)options_.cuda->stream_destroy(stream_);
}

Status NcclComm::aborted() const {
  return {StatusCode::kAborted, "NCCL's communicator was aborted"};
}

Status NcclComm::error(const char* what, int code) const {
  return nccl::error_of(options_.nccl->functions, what, code, comm_);
}

Status NcclComm::begin(const nccl::UniqueId& id) {
  Lock lock(mutex_);
  if (is_aborted()) return aborted();
  nccl::Config config = nccl::default_config(options_.nccl->version);
  config.blocking = 0;
  config.traffic_class = options_.traffic_class;
  const cuda::DeviceScope scope(*options_.cuda, options_.device);
  const int code = options_.nccl->functions.comm_init_rank_config(&comm_, options_.size, id,
                                                                  options_.rank, &config);
  return error("ncclCommInitRankConfig", code);
}

NcclComm::State NcclComm::look() {
  // Who holds the lock is in a call, and asks afterwards.
  Lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return {.in_progress = true, .error = {}};
  if (is_aborted()) return {.error = aborted()};
  if (comm_ == nullptr) return {};
  int state = nccl::kSuccess;
  const int code = options_.nccl->functions.comm_get_async_error(comm_, &state);
  if (code != nccl::kSuccess) state = code;
  return {.in_progress = state == nccl::kInProgress,
          .error = error("NCCL", state),
          .is_remote = state == nccl::kRemoteError};
}

Status NcclComm::issue(const std::function<Status(nccl::Comm)>& calls) {
  Lock lock(mutex_);
  if (is_aborted()) return aborted();
  const nccl::Functions& call = options_.nccl->functions;
  const cuda::DeviceScope scope(*options_.cuda, options_.device);
  const int started = call.group_start();
  if (started != nccl::kSuccess) return error("ncclGroupStart", started);
  Status status = calls(comm_);
  const int ended = call.group_end();  // also where a call has failed: the group is this thread's
  return status.ok() ? error("ncclGroupEnd", ended) : status;
}

namespace {

// 1 / size, as NCCL reads it.
struct Scalar {
  alignas(8) std::array<std::byte, 8> bytes{};

  template <typename T>
  void set(T value) {
    std::memcpy(bytes.data(), &value, sizeof value);
  }
};

Scalar inverse_of(int size, DataType dtype) {
  Scalar scalar;
  const double value = 1.0 / size;
  const auto small = static_cast<float>(value);
  switch (dtype) {
    case DataType::kFloat64: scalar.set(value); break;
    case DataType::kFloat16: scalar.set(kernels::float_to_half(small)); break;
    case DataType::kBFloat16: scalar.set(kernels::float_to_bfloat16(small)); break;
    case DataType::kFloat8E4M3FN:
      scalar.set(kernels::float_to_float8<kernels::E4M3FN>(small));
      break;
    case DataType::kFloat8E5M2: scalar.set(kernels::float_to_float8<kernels::E5M2>(small)); break;
    default: scalar.set(small); break;
  }
  return scalar;
}

}  // namespace

Result<int> NcclComm::average(DataType dtype) {
  Lock lock(mutex_);
  if (is_aborted()) return aborted();
  int& made = averages_[static_cast<size_t>(dtype)];
  if (made != 0) return made;
  Scalar scalar = inverse_of(options_.size, dtype);
  const int type = nccl::type_of(dtype, options_.nccl->version).value_or(nccl::kTypeUint8);
  const int code = options_.nccl->functions.red_op_create_pre_mul_sum(
      &made, scalar.bytes.data(), type, nccl::kScalarHostImmediate, comm_);
  if (code == nccl::kSuccess) return made;
  made = 0;
  return error("ncclRedOpCreatePreMulSum", code);
}

void NcclComm::abort() {
  aborts_.store(true, std::memory_order_release);
  Lock lock(mutex_);
  if (comm_ == nullptr) return;
  const cuda::DeviceScope scope(*options_.cuda, options_.device);
  const int code = options_.nccl->functions.comm_abort(comm_);
  const Status status = nccl::error_of(options_.nccl->functions, "ncclCommAbort", code, nullptr);
  if (!status.ok()) log_warn("backend nccl: {}", status.message());
  comm_ = nullptr;
}

void NcclComm::close(TimeNs deadline) {
  Lock lock(mutex_);
  if (is_aborted() || comm_ == nullptr) return;
  const nccl::Functions& call = options_.nccl->functions;
  const cuda::DeviceScope scope(*options_.cuda, options_.device);
  for (int& op : averages_) {
    if (op != 0) (void)call.red_op_destroy(std::exchange(op, 0), comm_);
  }
  int state = call.comm_finalize(comm_);
  while (state == nccl::kInProgress || state == nccl::kSuccess) {
    const int code = call.comm_get_async_error(comm_, &state);
    if (code != nccl::kSuccess) state = code;
    if (state != nccl::kInProgress || now_ns() >= deadline) break;
    std::this_thread::sleep_for(kSleep);
  }
  if (state == nccl::kSuccess) {
    (void)call.comm_destroy(std::exchange(comm_, nullptr));
    aborts_.store(true, std::memory_order_release);
    return;
  }
  lock.unlock();
  abort();
}

}  // namespace ciuic::backend
