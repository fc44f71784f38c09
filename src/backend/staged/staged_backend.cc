// SPDX-License-Identifier: Apache-2.0
// staged_backend.cc: looks where the memory of calls lies.

#include "backend/staged/staged_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "collective/device.h"
#include "collective/prepare.h"

namespace ciuic::backend {

StagedBackend::StagedBackend(StagedOptions options)
    : options_(std::move(options)), host_(*options_.host) {}

StagedBackend::~StagedBackend() { [[maybe_unused]] const Status unheard = close(); }

Capabilities StagedBackend::capabilities() const {
  Capabilities capabilities = host_.capabilities();
  capabilities.cuda = true;
  return capabilities;
}

Status StagedBackend::check(std::span<const Call> calls) {
  for (const Call& call : calls) CIUIC_RETURN_IF_ERROR(host_.check(collective::on_cpu(call)));
  return {};
}

Result<Staging*> StagedBackend::staging() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) {
    return Status(StatusCode::kClosed, "the communicator is closed; make a new one");
  }
  if (staging_ == nullptr) {
    Result<const cuda::Library*> library = cuda::open_cuda(options_.cuda_library);
    if (!library.ok()) return library.status();
    staging_ = std::make_unique<Staging>(Staging::Options{.cuda = &(*library)->functions,
                                                          .host = &host_,
                                                          .rank = options_.rank,
                                                          .size = options_.size,
                                                          .most_bytes = options_.buffer_size / 4});
  }
  return staging_.get();
}

Result<Work> StagedBackend::submit_staged(std::span<const Call> calls, const Device& device,
                                          const OperationOptions& options) {
  CIUIC_RETURN_IF_ERROR(check(calls));
  Result<Staging*> staged = staging();
  if (!staged.ok()) {
    return Status(staged.status().code(),
                  fmt::format("{} of tensors on cuda:{}: {}", collective::name_of(calls[0]),
                              device.index, staged.status().message()));
  }
  return (*staged)->submit(calls, device, options);
}

Result<Work> StagedBackend::submit(std::span<const Call> calls, const OperationOptions& options) {
  Result<Device> device = collective::device_of(calls, options_.rank);
  if (!device.ok()) return device.status();
  if (device->kind == DeviceKind::kCpu) [[likely]]
    return host_.submit(calls, options);
  return submit_staged(calls, *device, options);
}

class StagedBackend::PreparedCalls final : public Prepared {
 public:
  PreparedCalls(StagedBackend* backend, std::span<const Call> calls, const Device& device,
                const OperationOptions& options)
      : backend_(backend), calls_(calls.begin(), calls.end()), device_(device), options_(options) {}

  void set_stream(const Stream& stream) override { options_.stream = stream; }
  Result<Work> start() override { return backend_->submit_staged(calls_, device_, options_); }

 private:
  StagedBackend* backend_;
  std::vector<Call> calls_;
  Device device_;
  OperationOptions options_;
};

Result<std::unique_ptr<Prepared>> StagedBackend::prepare(std::span<const Call> calls,
                                                         const OperationOptions& options) {
  Result<Device> device = collective::device_of(calls, options_.rank);
  if (!device.ok()) return device.status();
  if (device->kind == DeviceKind::kCpu) return host_.prepare(calls, options);
  CIUIC_RETURN_IF_ERROR(check(calls));
  return std::unique_ptr<Prepared>(std::make_unique<PreparedCalls>(this, calls, *device, options));
}

Status StagedBackend::close() {
  Status status = host_.close();
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  if (staging_ != nullptr) staging_->close();
  return status;
}

size_t StagedBackend::staging_bytes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return host_.staging_bytes() + (staging_ == nullptr ? 0 : staging_->bytes());
}

}  // namespace ciuic::backend
