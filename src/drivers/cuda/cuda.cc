// SPDX-License-Identifier: Apache-2.0
// cuda.cc: the CUDA runtime by dlopen.

#include "drivers/cuda/cuda.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/printable.h"

namespace ciuic::cuda {

// The newest first: each runs with drivers of its own major version and later ones.
static constexpr const char* kNames[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};

static Status unavailable(std::string text) { return {StatusCode::kUnavailable, std::move(text)}; }

static Status no_runtime(const std::string& tried) {
  return unavailable(
      fmt::format("no CUDA runtime can be used. Tried: {}. Install one (pip install "
                  "nvidia-cuda-runtime, or a PyTorch that is built for CUDA), or name a libcudart "
                  "at another place by CIUIC_CUDA_LIBRARY",
                  tried.empty() ? "nothing" : printable(tried, 4096)));
}

static std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

namespace {

// Looks functions up, and notes those that are not there.
class Finder {
 public:
  explicit Finder(void* library) : library_(library) {}

  template <typename Function>
  void operator()(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(::dlsym(library_, name));
    if (*function == nullptr) missing_ += missing_.empty() ? name : fmt::format(", {}", name);
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

void find_functions(Finder& find, Functions* all) {
  find("cudaRuntimeGetVersion", &all->runtime_get_version);
  find("cudaDriverGetVersion", &all->driver_get_version);
  find("cudaGetErrorString", &all->get_error_string);
  find("cudaGetLastError", &all->get_last_error);
  find("cudaGetDeviceCount", &all->get_device_count);
  find("cudaGetDevice", &all->get_device);
  find("cudaSetDevice", &all->set_device);
  find("cudaDeviceGetPCIBusId", &all->device_get_pci_bus_id);
  find("cudaDeviceGetAttribute", &all->device_get_attribute);
  find("cudaPointerGetAttributes", &all->pointer_get_attributes);
  find("cudaMalloc", &all->malloc);
  find("cudaFree", &all->free);
  find("cudaMallocAsync", &all->malloc_async);
  find("cudaFreeAsync", &all->free_async);
  find("cudaHostAlloc", &all->host_alloc);
  find("cudaFreeHost", &all->free_host);
  find("cudaMemcpyAsync", &all->memcpy_async);
  find("cudaStreamCreateWithFlags", &all->stream_create_with_flags);
  find("cudaStreamDestroy", &all->stream_destroy);
  find("cudaStreamSynchronize", &all->stream_synchronize);
  find("cudaStreamWaitEvent", &all->stream_wait_event);
  find("cudaStreamIsCapturing", &all->stream_is_capturing);
  find("cudaEventCreateWithFlags", &all->event_create_with_flags);
  find("cudaEventDestroy", &all->event_destroy);
  find("cudaEventRecord", &all->event_record);
  find("cudaEventQuery", &all->event_query);
  find("cudaEventSynchronize", &all->event_synchronize);
  find("cudaLaunchHostFunc", &all->launch_host_func);
}

// What is found in one place after another, until one does.
class Search {
 public:
  // True: it is the one.
  bool try_loaded(const char* name) {
    void* handle = ::dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    return handle != nullptr && look(handle, name);
  }

  bool try_file(const std::string& name) {
    void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle != nullptr) return look(handle, name);
    const char* why = ::dlerror();
    note(why != nullptr ? why : name);
    return false;
  }

  Result<Library> result() {
    if (found_ != nullptr) return std::move(*found_);
    if (!unusable_.ok()) return unusable_;
    return no_runtime(tried_);
  }

 private:
  void note(const std::string& what) {
    tried_ += fmt::format("{}{}", tried_.empty() ? "" : "; ", what);
  }

  bool look(void* handle, const std::string& name) {
    auto library = std::make_unique<Library>();
    library->path = name;
    Finder find(handle);
    find_functions(find, &library->functions);
    if (!find.missing().empty()) {
      note(fmt::format("{}: it lacks {}", name, find.missing()));
      return false;
    }
    Dl_info place{};
    const void* function = reinterpret_cast<const void*>(library->functions.get_device_count);
    if (::dladdr(function, &place) != 0 && place.dli_fname != nullptr) {
      library->path = place.dli_fname;
    }
    Status usable = start(library.get());
    if (usable.ok()) {
      found_ = std::move(library);
      return true;
    }
    // An older runtime may do with an older driver.
    if (unusable_.ok()) unusable_ = std::move(usable);
    return false;
  }

  static Status start(Library* library) {
    const Functions& call = library->functions;
    int code = call.runtime_get_version(&library->runtime_version);
    if (code == kSuccess) code = call.driver_get_version(&library->driver_version);
    const std::string runtime = fmt::format("the CUDA runtime {} ({})", printable(library->path),
                                            version_text(library->runtime_version));
    if (code == kSuccess && library->driver_version == 0) {
      return unavailable(
          fmt::format("{} is there, but no driver of NVIDIA's. Install one that has CUDA {} "
                      "or later; in a container, start it with its GPUs (docker run --gpus all). "
                      "nvidia-smi shows whether it is there",
                      runtime, library->runtime_version / 1000));
    }
    if (code == kSuccess) code = call.get_device_count(&library->devices);
    if (code == kSuccess && library->devices > 0) return {};
    call.get_last_error();
    if (code == kOldDriver) {
      return unavailable(fmt::format(
          "{} wants a newer driver than the one that is there, which has CUDA {}. Install a newer "
          "driver, or a runtime for that CUDA (pip install nvidia-cuda-runtime-cu{})",
          runtime, version_text(library->driver_version), library->driver_version / 1000));
    }
    if (code == kNoDevice || code == kSuccess) {
      return unavailable(
          fmt::format("{} and a driver are there, but no GPU. Where nvidia-smi -L lists one, see "
                      "whether CUDA_VISIBLE_DEVICES hides it",
                      runtime));
    }
    const char* why = call.get_error_string(code);
    return unavailable(fmt::format("{} cannot start: {} ({})", runtime,
                                   why != nullptr ? printable(why) : "unknown", code));
  }

  std::unique_ptr<Library> found_;
  Status unusable_;    // of the first runtime that there was
  std::string tried_;  // those that are none
};

}  // namespace

Result<Library> find_cuda(const std::string& library, std::span<const char* const> names) {
  Search search;
  if (!library.empty()) {  // what is named is taken, or nothing
    (void)search.try_file(library);
    return search.result();
  }
  for (const char* name : names) {
    if (search.try_loaded(name)) return search.result();
  }
  for (const char* name : names) {
    if (search.try_file(name)) return search.result();
  }
  return search.result();
}

bool is_loaded() {
  for (const char* name : kNames) {
    if (void* handle = ::dlopen(name, RTLD_NOW | RTLD_NOLOAD)) {
      ::dlclose(handle);  // its count alone
      return true;
    }
  }
  return false;
}

Result<const Library*> open_cuda(const std::string& library) {
  // Never freed: threads of other libraries may outlive main().
  static const auto* const kept = new Result<Library>(find_cuda(library, kNames));
  if (!kept->ok()) return kept->status();
  return &kept->value();
}

Status error_of(const Functions& functions, const char* what, int code) {
  if (code == kSuccess) return {};
  const char* why = functions.get_error_string(code);
  return {code == kOutOfMemory ? StatusCode::kResource : StatusCode::kSystem,
          fmt::format("{} failed: {} ({})", what, why != nullptr ? printable(why) : "unknown error",
                      code)};
}

DeviceScope::DeviceScope(const Functions& functions, int device) : functions_(functions) {
  int before = -1;
  if (functions_.get_device(&before) != kSuccess || before == device) return;
  if (functions_.set_device(device) == kSuccess) before_ = before;
}

DeviceScope::~DeviceScope() {
  if (before_ >= 0) functions_.set_device(before_);
}

}  // namespace ciuic::cuda
