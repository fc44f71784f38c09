// SPDX-License-Identifier: Apache-2.0
// pmix.cc: libpmix by dlopen.

#include "drivers/pmix/pmix.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/printable.h"

namespace ciuic::pmix {

static constexpr const char* kSoname = "libpmix.so.2";  // of all versions from 2 on
static constexpr int kFirstVersion = 3;
static constexpr int kLastVersion = 6;

static Status unavailable(const std::string& why) {
  return {
      StatusCode::kUnavailable,
      fmt::format("this process was started by PMIx, and libpmix cannot be used. {}. Install it "
                  "(Debian, Ubuntu: apt-get install libpmix2), put it on LD_LIBRARY_PATH, or "
                  "start with srun --mpi=pmi2 or with CIUIC_STORE=file:///directory",
                  why)};
}

Info true_info(const char* key) {
  Info info;
  std::strncpy(info.key, key, sizeof info.key - 1);
  info.value.type = kBool;
  info.value.data.flag = true;
  return info;
}

Status check_version(const std::string& version) {
  const char* end = version.data() + version.size();
  const char* digit =
      std::find_if(version.data(), end, [](char c) { return '0' <= c && c <= '9'; });
  int major = 0;
  std::from_chars(digit, end, major);
  if (kFirstVersion <= major && major <= kLastVersion) return {};
  return unavailable(fmt::format("It is \"{}\"; known are versions {} to {}",
                                 printable(version, 128), kFirstVersion, kLastVersion));
}

template <typename Function>
static bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

static Result<Functions> functions_of(void* library, const std::string& name) {
  Functions all;
  const bool complete =
      find(library, "PMIx_Get_version", &all.get_version) &&
      find(library, "PMIx_Error_string", &all.error_string) &&
      find(library, "PMIx_Init", &all.init) && find(library, "PMIx_Finalize", &all.finalize) &&
      find(library, "PMIx_Put", &all.put) && find(library, "PMIx_Commit", &all.commit) &&
      find(library, "PMIx_Fence_nb", &all.fence_nb) && find(library, "PMIx_Get_nb", &all.get_nb);
  if (!complete) return unavailable(name + " lacks functions of PMIx");
  CIUIC_RETURN_IF_ERROR(check_version(all.get_version()));
  return all;
}

Result<Functions> open_libpmix(const std::vector<std::string>& names) {
  // An MPI library may have it open, and is then known to this launcher.
  if (void* library = ::dlopen(kSoname, RTLD_NOW | RTLD_NOLOAD); library != nullptr) {
    return functions_of(library, kSoname);
  }
  std::string tried;
  for (const std::string& name : names) {
    // Its plug-ins look for its symbols.
    void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (library != nullptr) return functions_of(library, name);
    const char* why = ::dlerror();
    tried += fmt::format("{}{}", tried.empty() ? "" : "; ", why != nullptr ? why : name);
  }
  return unavailable("Tried: " + printable(tried, 4096));
}

}  // namespace ciuic::pmix
