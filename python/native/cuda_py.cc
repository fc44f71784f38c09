// SPDX-License-Identifier: Apache-2.0
// cuda_py.cc: what an array on a GPU needs beside its address: device, stream, memory to be packed
// into.

#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "drivers/cuda/cuda.h"
#include "module.h"

namespace ciuic::python {
namespace {

// ciuic.devices.current_stream. Never freed: it belongs to the module, which does not end before
// the interpreter.
PyObject* stream_source = nullptr;

const cuda::Functions& cuda_or_raise() {
  Result<Config> config = Config::from_environment();
  raise_unless_ok(config.status());
  Result<const cuda::Library*> library = cuda::open_cuda(config->cuda_library);
  raise_unless_ok(library.status());
  return (*library)->functions;
}

// -1: this process has not loaded CUDA.
int current_device() {
  Result<Config> config = Config::from_environment();
  raise_unless_ok(config.status());
  if (config->cuda_library.empty() && !cuda::is_loaded()) return -1;
  Result<const cuda::Library*> library = cuda::open_cuda(config->cuda_library);
  int device = -1;
  if (!library.ok() || (*library)->functions.get_device(&device) != cuda::kSuccess) return -1;
  return device;
}

// Memory of a GPU that several arrays are packed into, to travel as one. All is done in the
// caller's stream, in its order.
class CudaScratch {
 public:
  CudaScratch(size_t bytes, int device)
      : cuda_(cuda_or_raise()), device_(device), stream_(current_stream(device).handle) {
    const cuda::DeviceScope scope(cuda_, device_);
    raise_unless_ok(
        cuda::error_of(cuda_, "cudaMallocAsync", cuda_.malloc_async(&data_, bytes, stream_)));
  }

  ~CudaScratch() {
    const cuda::DeviceScope scope(cuda_, device_);
    (void)cuda_.free_async(data_, stream_);
  }

  CudaScratch(const CudaScratch&) = delete;
  CudaScratch& operator=(const CudaScratch&) = delete;

  uintptr_t address() const { return reinterpret_cast<uintptr_t>(data_); }

  using Places = std::vector<std::pair<uintptr_t, size_t>>;  // address, bytes

  void pack(const Places& places) { copy(places, /*into=*/true); }
  void unpack(const Places& places) { copy(places, /*into=*/false); }

 private:
  void copy(const Places& places, bool into) {
    stream_ = current_stream(device_).handle;
    Status status;
    {
      const nb::gil_scoped_release no_gil;
      const cuda::DeviceScope scope(cuda_, device_);
      auto* own = static_cast<std::byte*>(data_);
      for (const auto& [place, bytes] : places) {
        auto* other = reinterpret_cast<std::byte*>(place);
        if (bytes > 0 && status.ok()) {
          status = cuda::error_of(cuda_, "cudaMemcpyAsync on the device",
                                  cuda_.memcpy_async(into ? own : other, into ? other : own, bytes,
                                                     cuda::kDeviceToDevice, stream_));
        }
        own += bytes;
      }
    }
    raise_unless_ok(status);
  }

  const cuda::Functions& cuda_;
  const int device_;
  cuda::Stream stream_;  // in which it was used last
  void* data_ = nullptr;
};

}  // namespace

Placed placed(int number) {
  constexpr int kPerDevice = 256;
  Placed place{.dtype = static_cast<DataType>(number % kPerDevice), .device = {}};
  const int device = number / kPerDevice - 1;
  if (device >= 0) place.device = {DeviceKind::kCuda, device};
  return place;
}

Stream current_stream(int device) {
  Stream stream{.handle = nullptr, .device_index = device};
  if (stream_source == nullptr) return stream;
  const auto handle = nb::cast<uintptr_t>(nb::handle(stream_source)(device));
  stream.handle = reinterpret_cast<void*>(handle);
  return stream;
}

void bind_cuda(nb::module_& module) {
  module.def(
      "set_stream_source",
      [](nb::object source) {
        Py_XDECREF(stream_source);
        stream_source = source.release().ptr();
      },
      nb::arg("source"),
      "Who knows a device's current stream: a function from its number to a cudaStream_t.");
  module.def("current_cuda_device", &current_device,
             "The calling thread's GPU; -1 where this process has not loaded CUDA.");
  nb::class_<CudaScratch>(module, "CudaScratch", "Scratch on a GPU.")
      .def(nb::init<size_t, int>(), nb::arg("bytes"), nb::arg("device"))
      .def_prop_ro("address", &CudaScratch::address)
      .def("pack", &CudaScratch::pack, nb::arg("places"), "Copies each (address, bytes) in.")
      .def("unpack", &CudaScratch::unpack, nb::arg("places"), "Copies them out again.");
}

}  // namespace ciuic::python
