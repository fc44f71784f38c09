// SPDX-License-Identifier: Apache-2.0
// mpi.cc: an MPI library by dlopen.

#include "drivers/mpi/mpi.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/printable.h"

namespace ciuic::mpi {

static constexpr int kKnownAbi = 1;

static Status unavailable(const std::string& tried) {
  return {
      StatusCode::kUnavailable,
      fmt::format("no MPI library can be used for backend=\"mpi\". Tried: {}. Install one with "
                  "the ABI of MPI 5 (pip install mpich), or mpi4py beside the MPI that you have "
                  "(pip install mpi4py); CIUIC_MPI_LIBRARY names a libmpi_abi.so.1 at another "
                  "place",
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

void find_administration(Finder& find, Functions* all) {
  find("MPI_Initialized", &all->initialized);
  find("MPI_Finalized", &all->finalized);
  find("MPI_Init_thread", &all->init_thread);
  find("MPI_Finalize", &all->finalize);
  find("MPI_Abort", &all->abort);
  find("MPI_Query_thread", &all->query_thread);
  find("MPI_Is_thread_main", &all->is_thread_main);
  find("MPI_Get_library_version", &all->get_library_version);
  find("MPI_Error_string", &all->error_string);
  find("MPI_Comm_size", &all->comm_size);
  find("MPI_Comm_rank", &all->comm_rank);
  find("MPI_Comm_idup", &all->comm_idup);
  find("MPI_Comm_split", &all->comm_split);
  find("MPI_Comm_group", &all->comm_group);
  find("MPI_Comm_create_group", &all->comm_create_group);
  find("MPI_Comm_free", &all->comm_free);
  find("MPI_Comm_set_errhandler", &all->comm_set_errhandler);
  find("MPI_Comm_get_attr", &all->comm_get_attr);
  find("MPI_Group_incl", &all->group_incl);
  find("MPI_Group_free", &all->group_free);
  find("MPI_Type_contiguous", &all->type_contiguous);
  find("MPI_Type_create_hindexed", &all->type_create_hindexed);
  find("MPI_Type_commit", &all->type_commit);
  find("MPI_Type_free", &all->type_free);
  find("MPI_Op_create", &all->op_create);
}

void find_operations(Finder& find, Functions* all) {
  find("MPI_Test", &all->test);
  find("MPI_Get_count", &all->get_count);
  find("MPI_Isend", &all->isend);
  find("MPI_Irecv", &all->irecv);
  find("MPI_Ibarrier", &all->ibarrier);
  find("MPI_Ibcast", &all->ibcast);
  find("MPI_Igather", &all->igather);
  find("MPI_Iscatter", &all->iscatter);
  find("MPI_Iallgather", &all->iallgather);
  find("MPI_Iallgatherv", &all->iallgatherv);
  find("MPI_Ialltoall", &all->ialltoall);
  find("MPI_Ialltoallw", &all->ialltoallw);
  find("MPI_Iallreduce", &all->iallreduce);
  find("MPI_Ireduce", &all->ireduce);
  find("MPI_Ireduce_scatter", &all->ireduce_scatter);
  find("MPI_Ireduce_scatter_block", &all->ireduce_scatter_block);
}

// Empty, or why the library is none.
std::string look(void* handle, const Names& constants, Library* library) {
  Finder find(handle);
  find_administration(find, &library->functions);
  find_operations(find, &library->functions);
  if (!find.missing().empty()) return "it lacks " + find.missing();
  const auto query = reinterpret_cast<int (*)()>(::dlsym(handle, "MPIX_Query_cuda_support"));
  library->is_cuda_aware = query != nullptr && query() == 1;
  if (!constants.empty()) return "";
  using AbiVersion = int(int* major, int* minor);
  const auto abi_version = reinterpret_cast<AbiVersion*>(::dlsym(handle, "MPI_Abi_get_version"));
  int major = -1;
  int minor = -1;
  if (abi_version == nullptr || abi_version(&major, &minor) != kSuccess || major < 0) {
    return "it has not the standard ABI of MPI 5, so mpi4py must tell its constants";
  }
  if (major != kKnownAbi) return fmt::format("its ABI has version {}.{}; known is 1", major, minor);
  library->has_abi = true;
  return "";
}

}  // namespace

Result<Library> open_mpi(std::span<const std::string> paths, const Names& constants) {
  Result<Constants> known = constants_from(constants.empty() ? abi_constants() : constants);
  if (!known.ok()) return known.status();
  std::string tried;
  const auto note = [&](const std::string& what) {
    tried += fmt::format("{}{}", tried.empty() ? "" : "; ", what);
  };
  for (const std::string& path : paths) {
    Library library;
    library.constants = *known;
    library.path = path;
    // Its plug-ins look for its symbols, and it cannot be unloaded.
    void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (handle == nullptr) handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (handle == nullptr) {
      const char* why = ::dlerror();
      note(why != nullptr ? why : path);
      continue;
    }
    const std::string why = look(handle, constants, &library);
    if (why.empty()) return library;
    note(fmt::format("{}: {}", path, why));
  }
  return unavailable(tried);
}

// With one space for several.
static std::string one_line(const std::string& text) {
  std::string line;
  for (const char letter : printable(text, 512)) {
    if (letter != ' ' || (!line.empty() && line.back() != ' ')) line += letter;
  }
  if (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

std::string error_text(const Functions& functions, int code) {
  std::string text(kMostTextBytes, '\0');
  int length = 0;
  if (functions.error_string(code, text.data(), &length) != kSuccess || length <= 0) {
    return fmt::format("error {} of MPI", code);
  }
  text.resize(std::min(static_cast<size_t>(length), text.size()));
  return one_line(text);
}

std::string version_text(const Functions& functions) {
  std::string text(kMostTextBytes, '\0');
  int length = 0;
  if (functions.get_library_version(text.data(), &length) != kSuccess || length <= 0) return "";
  text.resize(std::min(static_cast<size_t>(length), text.size()));
  // MPICH goes on with how it was compiled.
  text.resize(std::min(text.find_first_of(std::string_view("\0\n", 2)), text.size()));
  return one_line(text);
}

}  // namespace ciuic::mpi
