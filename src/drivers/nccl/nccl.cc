// SPDX-License-Identifier: Apache-2.0
// nccl.cc: libnccl by dlopen.

#include "drivers/nccl/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/printable.h"

namespace ciuic::nccl {

static constexpr const char* kSoname = "libnccl.so.2";  // of all versions 2
static constexpr int kSplitVersion = 21800;
static constexpr int kUndefinedVersion = 21700;  // the first that knows kUndefined
static constexpr int kFloat8Version = 22400;

static Status unavailable(const std::string& tried) {
  return {
      StatusCode::kUnavailable,
      fmt::format("no NCCL can be used for backend=\"nccl\". Tried: {}. Install one (pip install "
                  "nvidia-nccl-cu13, or -cu12 for a driver of CUDA 12; PyTorch for CUDA brings "
                  "one), or name a libnccl.so.2 at another place by CIUIC_NCCL_LIBRARY",
                  tried.empty() ? "nothing" : printable(tried, 4096))};
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
  find("ncclGetErrorString", &all->get_error_string);
  find("ncclGetLastError", &all->get_last_error);
  find("ncclGetUniqueId", &all->get_unique_id);
  find("ncclCommInitRankConfig", &all->comm_init_rank_config);
  find("ncclCommFinalize", &all->comm_finalize);
  find("ncclCommDestroy", &all->comm_destroy);
  find("ncclCommAbort", &all->comm_abort);
  find("ncclCommGetAsyncError", &all->comm_get_async_error);
  find("ncclCommCount", &all->comm_count);
  find("ncclRedOpCreatePreMulSum", &all->red_op_create_pre_mul_sum);
  find("ncclRedOpDestroy", &all->red_op_destroy);
  find("ncclGroupStart", &all->group_start);
  find("ncclGroupEnd", &all->group_end);
  find("ncclAllReduce", &all->all_reduce);
  find("ncclReduce", &all->reduce);
  find("ncclBroadcast", &all->broadcast);
  find("ncclAllGather", &all->all_gather);
  find("ncclReduceScatter", &all->reduce_scatter);
  find("ncclSend", &all->send);
  find("ncclRecv", &all->recv);
}

// Empty, or why the library cannot be used. Nothing but its version is called.
std::string look(void* handle, Library* library) {
  Functions& all = library->functions;
  Finder find(handle);
  find("ncclGetVersion", &all.get_version);
  if (!find.missing().empty()) return "it lacks " + find.missing();
  Dl_info place{};
  if (::dladdr(reinterpret_cast<const void*>(all.get_version), &place) != 0 &&
      place.dli_fname != nullptr) {
    library->path = place.dli_fname;
  }
  const int code = all.get_version(&library->version);
  if (code != kSuccess) return fmt::format("ncclGetVersion failed ({})", code);
  const std::string version = version_text(library->version);
  if (library->version >= (kKnownMajor + 1) * 10000) {
    return fmt::format("it is NCCL {}, and its major version is not known here, {} is", version,
                       kKnownMajor);
  }
  if (library->version < kOldestVersion) {
    return fmt::format("it is NCCL {}, older than {}", version, version_text(kOldestVersion));
  }
  find_functions(find, &all);
  if (!find.missing().empty()) return fmt::format("NCCL {} lacks {}", version, find.missing());
  if (library->version >= kSplitVersion) {
    Finder optional(handle);
    optional("ncclCommSplit", &all.comm_split);
  }
  return "";
}

}  // namespace

bool is_loaded() {
  void* handle = ::dlopen(kSoname, RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return false;
  ::dlclose(handle);
  return true;
}

Result<Library> find_nccl(const char* loaded, std::span<const std::string> paths) {
  std::string tried;
  const auto note = [&](const std::string& what) {
    tried += fmt::format("{}{}", tried.empty() ? "" : "; ", what);
  };
  Library library;
  const auto try_file = [&](const std::string& path) {
    library = Library{.functions = {}, .path = path};
    void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr) {
      const char* why = ::dlerror();
      note(why != nullptr ? why : path);
      return false;
    }
    const std::string why = look(handle, &library);
    if (!why.empty()) note(fmt::format("{}: {}", library.path, why));
    return why.empty();
  };
  for (const std::string& path : paths) {
    if (try_file(path)) return library;
  }
  if (!paths.empty()) return unavailable(tried);
  // A second copy beside the one that is in use would take a second share of the GPU's memory.
  if (void* handle = ::dlopen(loaded, RTLD_NOW | RTLD_NOLOAD); handle != nullptr) {
    library.path = loaded;
    const std::string why = look(handle, &library);
    if (why.empty()) return library;
    note(fmt::format("{}, which is loaded: {}", library.path, why));
    return unavailable(tried);
  }
  if (try_file(loaded)) return library;
  return unavailable(tried);
}

Result<const Library*> open_nccl(std::span<const std::string> paths) {
  // Never freed: its threads may outlive main().
  static const auto* const kept = new Result<Library>(find_nccl(kSoname, paths));
  if (!kept->ok()) return kept->status();
  return &kept->value();
}

std::string version_text(int version) {
  // 2.8.4 and before have one digit less for the minor version.
  const int unit = version < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", version / unit, version % unit / 100, version % 100);
}

Config default_config(int version) {
  Config config;
  if (version < kUndefinedVersion) config.blocking = 1;
  return config;
}

// What to do, and what kind of error it is.
static std::pair<StatusCode, const char*> advice(int code, std::string_view last) {
  switch (code) {
    case kUnhandledCudaError:
      return {StatusCode::kSystem,
              "NCCL_DEBUG=INFO shows the call; often the GPU's memory is short, or the driver is "
              "older than this NCCL wants"};
    case kSystemError:
      return {StatusCode::kSystem,
              "NCCL_DEBUG=INFO shows the call; often no network interface fits "
              "(NCCL_SOCKET_IFNAME), or /dev/shm is small (docker run --shm-size)"};
    case kInvalidUsage:
      if (last.find("Duplicate GPU") != std::string_view::npos) {
        return {StatusCode::kInvalidArgument,
                "NCCL wants a GPU for each rank: set each rank's device before it joins, or take "
                "backend=\"native\""};
      }
      [[fallthrough]];
    case kInvalidArgument:
      return {StatusCode::kInvalidArgument, "NCCL_DEBUG=WARN shows the argument"};
    case kRemoteError:
      return {StatusCode::kPeerLost,
              "another rank has ended or cannot be reached; look at its log"};
    case kTimeout:
      return {StatusCode::kTimeout, "a rank did not come; look at the logs of the others"};
    default: return {StatusCode::kSystem, "NCCL_DEBUG=INFO shows more"};
  }
}

Status error_of(const Functions& functions, const char* what, int code, Comm comm) {
  if (code == kSuccess || code == kInProgress) return {};
  const char* name = functions.get_error_string(code);
  const char* last = functions.get_last_error(comm);
  std::string why = name != nullptr ? printable(name) : "unknown error";
  // "(run with NCCL_DEBUG=INFO for details)" is part of some; what to do stands at the end.
  if (const size_t hint = why.find(" (run with"); hint != std::string::npos) why.resize(hint);
  std::string detail = last != nullptr ? printable(last, 1024) : "";
  while (!detail.empty() && (detail.back() == ' ' || detail.back() == '.')) detail.pop_back();
  const auto [status, hint] = advice(code, detail);
  return {status, fmt::format("{} failed: {} ({}){}{}. {}", what, why, code,
                              detail.empty() ? "" : ": ", detail, hint)};
}

std::optional<int> type_of(DataType dtype, int version) {
  switch (dtype) {
    case DataType::kInt8: return 0;
    case DataType::kUInt8: return kTypeUint8;
    case DataType::kInt32: return 2;
    case DataType::kUInt32: return 3;
    case DataType::kInt64: return 4;
    case DataType::kUInt64: return 5;
    case DataType::kFloat16: return 6;
    case DataType::kFloat32: return 7;
    case DataType::kFloat64: return 8;
    case DataType::kBFloat16: return 9;
    case DataType::kFloat8E4M3FN:
      return version >= kFloat8Version ? std::optional(10) : std::nullopt;
    case DataType::kFloat8E5M2: return version >= kFloat8Version ? std::optional(11) : std::nullopt;
    default: return std::nullopt;  // 16-bit integers, truth values, complex numbers
  }
}

std::optional<int> op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return kSum;
    case ReduceOp::kAvg: return kAvg;
    case ReduceOp::kMin: return kMin;
    case ReduceOp::kMax: return kMax;
    case ReduceOp::kProduct: return kProd;
    default: return std::nullopt;
  }
}

}  // namespace ciuic::nccl
