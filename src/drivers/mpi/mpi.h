// SPDX-License-Identifier: Apache-2.0
// mpi.h: the part of an MPI library that Ciuic uses, opened at run time.
//
// Two kinds of library, and one table for both. Libraries with the standard ABI of MPI 5
// (libmpi_abi.so.1) have constants that are known here. The constants of any other (Open MPI 4 and
// 5, Intel MPI, older MPICH) stand in its header only: the caller, who has that header or mpi4py,
// gives them by name.
//
// A handle (MPI_Comm, MPI_Datatype, MPI_Op, MPI_Request) is a Handle here. Where the library's are
// pointers, that is one; where they are ints, the library reads the low half of the register, and
// writes the low half of a Handle that was 0. That holds for one handle, not for arrays of them
// (pack_handles()).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ciuic/dtype.h"
#include "ciuic/status.h"

namespace ciuic::mpi {

using Handle = uintptr_t;
using ReduceFunction = void(void* in, void* inout, int* count, Handle* type);

inline constexpr int kSuccess = 0;
inline constexpr size_t kMostStatusBytes = 256;
inline constexpr int kMostTextBytes = 8192;  // MPI_MAX_LIBRARY_VERSION_STRING of any library

struct Constants {
  Handle comm_world = 0;
  Handle byte = 0;
  std::array<Handle, kDataTypes> types{};  // by DataType; 0: the library has none that is the same
  std::array<Handle, kReduceOps> ops{};    // by ReduceOp; 0: likewise (AVG)
  Handle errors_return = 0;
  void* in_place = nullptr;
  int any_source = 0;
  int any_tag = 0;
  int thread_serialized = 0;
  int thread_multiple = 0;
  int tag_ub = 0;  // key of the attribute that is the largest tag
  size_t handle_bytes = sizeof(Handle);
  size_t status_bytes = 0;
  size_t source_offset = 0;  // of ints in a status
  size_t tag_offset = 0;
  int most_count = INT32_MAX;  // elements of one call; tests lower it
};

// Of what any MPI since 3.0 has. A test may stand in for each.
struct Functions {
  int (*initialized)(int* flag) = nullptr;
  int (*finalized)(int* flag) = nullptr;
  int (*init_thread)(int* argc, char*** argv, int required, int* provided) = nullptr;
  int (*finalize)() = nullptr;
  int (*abort)(Handle comm, int code) = nullptr;
  int (*query_thread)(int* provided) = nullptr;
  int (*is_thread_main)(int* flag) = nullptr;
  int (*get_library_version)(char* text, int* length) = nullptr;
  int (*error_string)(int code, char* text, int* length) = nullptr;
  int (*comm_size)(Handle comm, int* size) = nullptr;
  int (*comm_rank)(Handle comm, int* rank) = nullptr;
  int (*comm_idup)(Handle comm, Handle* made, Handle* request) = nullptr;
  int (*comm_split)(Handle comm, int color, int key, Handle* made) = nullptr;
  int (*comm_group)(Handle comm, Handle* group) = nullptr;
  int (*comm_create_group)(Handle comm, Handle group, int tag, Handle* made) = nullptr;
  int (*comm_free)(Handle* comm) = nullptr;
  int (*comm_set_errhandler)(Handle comm, Handle handler) = nullptr;
  int (*comm_get_attr)(Handle comm, int key, void* value, int* flag) = nullptr;
  int (*group_incl)(Handle group, int count, const int* ranks, Handle* made) = nullptr;
  int (*group_free)(Handle* group) = nullptr;
  int (*type_contiguous)(int count, Handle old, Handle* made) = nullptr;
  int (*type_create_hindexed)(int count, const int* lengths, const intptr_t* displacements,
                              Handle old, Handle* made) = nullptr;
  int (*type_commit)(Handle* type) = nullptr;
  int (*type_free)(Handle* type) = nullptr;
  int (*op_create)(ReduceFunction* function, int commutes, Handle* op) = nullptr;
  int (*test)(Handle* request, int* flag, void* status) = nullptr;
  int (*get_count)(const void* status, Handle type, int* count) = nullptr;
  int (*isend)(const void* buffer, int count, Handle type, int destination, int tag, Handle comm,
               Handle* request) = nullptr;
  int (*irecv)(void* buffer, int count, Handle type, int source, int tag, Handle comm,
               Handle* request) = nullptr;
  int (*ibarrier)(Handle comm, Handle* request) = nullptr;
  int (*ibcast)(void* buffer, int count, Handle type, int root, Handle comm,
                Handle* request) = nullptr;
  int (*igather)(const void* input, int input_count, Handle input_type, void* output,
                 int output_count, Handle output_type, int root, Handle comm,
                 Handle* request) = nullptr;
  int (*iscatter)(const void* input, int input_count, Handle input_type, void* output,
                  int output_count, Handle output_type, int root, Handle comm,
                  Handle* request) = nullptr;
  int (*iallgather)(const void* input, int input_count, Handle input_type, void* output,
                    int output_count, Handle output_type, Handle comm, Handle* request) = nullptr;
  int (*iallgatherv)(const void* input, int input_count, Handle input_type, void* output,
                     const int* output_counts, const int* displacements, Handle output_type,
                     Handle comm, Handle* request) = nullptr;
  int (*ialltoall)(const void* input, int input_count, Handle input_type, void* output,
                   int output_count, Handle output_type, Handle comm, Handle* request) = nullptr;
  // The types are arrays of the library's own handles (pack_handles()).
  int (*ialltoallw)(const void* input, const int* input_counts, const int* input_displacements,
                    const void* input_types, void* output, const int* output_counts,
                    const int* output_displacements, const void* output_types, Handle comm,
                    Handle* request) = nullptr;
  int (*iallreduce)(const void* input, void* output, int count, Handle type, Handle op, Handle comm,
                    Handle* request) = nullptr;
  int (*ireduce)(const void* input, void* output, int count, Handle type, Handle op, int root,
                 Handle comm, Handle* request) = nullptr;
  int (*ireduce_scatter)(const void* input, void* output, const int* counts, Handle type, Handle op,
                         Handle comm, Handle* request) = nullptr;
  int (*ireduce_scatter_block)(const void* input, void* output, int count, Handle type, Handle op,
                               Handle comm, Handle* request) = nullptr;
};

struct Library {
  Functions functions;
  Constants constants;
  std::string path;  // as it was opened
  bool has_abi = false;
  bool is_cuda_aware = false;  // by its own word: it takes pointers to a GPU's memory
};

// By the names of MPI without "MPI_": "COMM_WORLD", "BYTE", "FLOAT", "SUM", "ANY_SOURCE", ...; and
// "HANDLE_BYTES", "STATUS_BYTES", "SOURCE_OFFSET", "TAG_OFFSET"; see constants.cc.
using Names = std::map<std::string, int64_t>;

// Those of the standard ABI.
const Names& abi_constants();

// kInvalidArgument: one is missing, or cannot be.
Result<Constants> constants_from(const Names& names);

// Opens the first of `paths` that can be, or takes what this process has under that name. Without
// `constants` it must have the standard ABI. kUnavailable: none; says what was tried.
Result<Library> open_mpi(std::span<const std::string> paths, const Names& constants);

// What MPI says of an error, in one line.
std::string error_text(const Functions& functions, int code);

// "Open MPI v5.0.11, ...", in one line.
std::string version_text(const Functions& functions);

// Handles one after another as wide as the library's are.
std::vector<std::byte> pack_handles(const Constants& constants, std::span<const Handle> handles);

}  // namespace ciuic::mpi
