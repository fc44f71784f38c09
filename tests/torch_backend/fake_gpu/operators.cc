// SPDX-License-Identifier: Apache-2.0
// operators.cc: torch's operators on the fake GPUs: memory, views and copies here, everything else
// by way of the CPU. Copies run in the current stream, which means later; those to the CPU are
// waited for.

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "memory.h"
#include "runtime.h"
#include "streams.h"

namespace fake_gpu {

namespace {

c10::Device place_of(std::optional<c10::Device> device) {
  const auto index = static_cast<c10::DeviceIndex>(current_device());
  if (device && device->has_index()) return *device;
  return {c10::DeviceType::CUDA, index};
}

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
                 std::optional<at::Layout> /*layout*/, std::optional<c10::Device> device,
                 std::optional<bool> /*pin*/, std::optional<at::MemoryFormat> format) {
  const OnDevice scope(place_of(device).index());
  return at::detail::empty_generic(sizes, allocator(), kKeys, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> type, std::optional<at::Layout> /*layout*/,
                         std::optional<c10::Device> device, std::optional<bool> /*pin*/) {
  const OnDevice scope(place_of(device).index());
  return at::detail::empty_strided_generic(sizes, strides, allocator(), kKeys,
                                           c10::dtype_or_default(type));
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef sizes,
                         std::optional<at::MemoryFormat> /*format*/) {
  const at::Tensor larger = empty(sizes, self.scalar_type(), {}, self.device(), {}, {});
  c10::StorageImpl* const storage = self.storage().unsafeGetStorageImpl();
  if (larger.storage().nbytes() > storage->nbytes()) {
    storage->set_nbytes(larger.storage().nbytes());
    storage->set_data_ptr_noswap(larger.storage().unsafeGetStorageImpl()->set_data_ptr({}));
  }
  self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return self;
}

// The same elements where the host can reach them; keeps nothing alive.
at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  void* const data = tensor.numel() == 0 ? nullptr : host_of(tensor.const_data_ptr());
  at::Tensor view = at::from_blob(data, tensor.sizes(), tensor.strides(),
                                  at::TensorOptions(tensor.scalar_type()).device(at::kCPU));
  if (tensor.is_conj()) view._set_conj(true);
  if (tensor.is_neg()) view._set_neg(true);
  return view;
}

struct Copy {
  at::Tensor target, source;  // the CPU's

  static void run(void* data) {
    const std::unique_ptr<Copy> copy(static_cast<Copy*>(data));
    const at::AutoDispatchBelowADInplaceOrView guard;
    copy->target.copy_(copy->source);
  }
};

at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool /*non_blocking*/) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const c10::Device device = self.is_cuda() ? self.device() : source.device();
  const OnDevice scope(device.index());
  if (self.is_cuda() && source.is_cuda() && source.device() != device) {
    return self.copy_(source.cpu());
  }
  void* const stream = handle_of(current_stream(device.index()));
  // What comes from the CPU is taken now, as by a copy of pageable memory.
  auto task = std::make_unique<Copy>(Copy{
      on_host(self), (source.is_cpu() ? source.clone() : on_host(source)).expand(self.sizes())});
  FAKE_GPU_CALL(int(void*, void (*)(void*), void*), ciuic_fake_enqueue, stream, &Copy::run,
                task.get());
  (void)task.release();
  if (self.is_cpu()) synchronize(stream);
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool non_blocking) {
  at::Tensor to = target;
  return copy(to, self, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target) {
  if (target.sizes() != self.sizes()) target.resize_(self.sizes());
  return copy_from(self, target, false);
}

at::Scalar item(const at::Tensor& self) { return self.cpu().item(); }

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef sizes) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(sizes));
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef sizes,
                      c10::SymIntArrayRef strides, std::optional<c10::SymInt> offset) {
  std::optional<int64_t> at;
  if (offset) at = offset->expect_int();
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(sizes),
                                           C10_AS_INTARRAYREF_SLOW(strides), at);
}

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef sizes,
                         c10::SymIntArrayRef strides) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(sizes),
                                    C10_AS_INTARRAYREF_SLOW(strides));
}

void by_way_of_the_cpu(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  at::native::cpu_fallback(operation, stack);
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&by_way_of_the_cpu>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("resize_", &resize);
  library.impl("copy_", &copy);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &item);
  library.impl("view", &view);
  library.impl("as_strided", &as_strided);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("unfold", &at::native::unfold);
  library.impl("view_as_real", &at::native::view_as_real);
  library.impl("view_as_complex", &at::native::view_as_complex);
}

}  // namespace

}  // namespace fake_gpu
