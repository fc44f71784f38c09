// SPDX-License-Identifier: Apache-2.0
// nccl.h: the part of NCCL that Ciuic uses, opened at run time.
//
// Declared here by NCCL's C ABI, since its header needs those of CUDA. The version is read before
// anything else is called; a major version other than kKnownMajor is refused.
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "ciuic/dtype.h"
#include "ciuic/status.h"

namespace ciuic::nccl {

using Comm = void*;
using Stream = void*;  // of the CUDA runtime's

inline constexpr int kKnownMajor = 2;
inline constexpr int kOldestVersion = 21400;  // 2.14: ncclCommInitRankConfig

enum Code : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
  kTimeout = 8,  // since 2.32
};

// ncclRedOp_t, of what is built in. Others come from red_op_create_pre_mul_sum.
inline constexpr int kSum = 0;
inline constexpr int kProd = 1;
inline constexpr int kMax = 2;
inline constexpr int kMin = 3;
inline constexpr int kAvg = 4;
inline constexpr int kScalarHostImmediate = 1;  // the scalar is on the host, and read at the call

struct UniqueId {
  std::array<char, 128> bytes{};
};

// ncclConfig_t up to 2.26's fields. A library reads no more of `size` than it knows, and ignores
// the fields that came after `version`; so one Config does for all of them, save `blocking`.
inline constexpr int kUndefined = INT_MIN;
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 22600;
  int blocking = kUndefined;  // before 2.17: 0 or 1
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;  // only with max_ctas: undefined is the least number
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;  // since 2.26
};
static_assert(sizeof(Config) == 48);

// With what a library of that version takes for "as you think best".
Config default_config(int version);

// A test may stand in for each.
struct Functions {
  int (*get_version)(int* version) = nullptr;
  const char* (*get_error_string)(int code) = nullptr;
  const char* (*get_last_error)(Comm comm) = nullptr;
  int (*get_unique_id)(UniqueId* id) = nullptr;
  int (*comm_init_rank_config)(Comm* comm, int size, UniqueId id, int rank,
                               Config* config) = nullptr;
  int (*comm_split)(Comm comm, int color, int key, Comm* made,
                    Config* config) = nullptr;  // or null
  int (*comm_finalize)(Comm comm) = nullptr;
  int (*comm_destroy)(Comm comm) = nullptr;
  int (*comm_abort)(Comm comm) = nullptr;
  int (*comm_get_async_error)(Comm comm, int* code) = nullptr;
  int (*comm_count)(Comm comm, int* size) = nullptr;
  int (*red_op_create_pre_mul_sum)(int* op, void* scalar, int type, int residence,
                                   Comm comm) = nullptr;
  int (*red_op_destroy)(int op, Comm comm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_reduce)(const void* input, void* output, size_t count, int type, int op, Comm comm,
                    Stream stream) = nullptr;
  int (*reduce)(const void* input, void* output, size_t count, int type, int op, int root,
                Comm comm, Stream stream) = nullptr;
  int (*broadcast)(const void* input, void* output, size_t count, int type, int root, Comm comm,
                   Stream stream) = nullptr;
  int (*all_gather)(const void* input, void* output, size_t input_count, int type, Comm comm,
                    Stream stream) = nullptr;
  int (*reduce_scatter)(const void* input, void* output, size_t output_count, int type, int op,
                        Comm comm, Stream stream) = nullptr;
  int (*send)(const void* input, size_t count, int type, int peer, Comm comm,
              Stream stream) = nullptr;
  int (*recv)(void* output, size_t count, int type, int peer, Comm comm, Stream stream) = nullptr;
};

struct Library {
  Functions functions;
  std::string path;
  int version = 0;  // 22304 is 2.23.4
};

// Whether a libnccl is in the process already, so that its environment variables have been read or
// will be by another.
bool is_loaded();

// The process's NCCL, opened by the first call, whose answer stays: the first of `paths` that can
// be; without any, one that is loaded already, else what the loader finds as libnccl.so.2.
//   kUnavailable  none (what was tried, and how to install it), another major version, or one that
//                 is older than kOldestVersion
Result<const Library*> open_nccl(std::span<const std::string> paths);

// What open_nccl() does each time. `loaded`: the name that a copy in the process goes by.
Result<Library> find_nccl(const char* loaded, std::span<const std::string> paths);

// "2.23.4"
std::string version_text(int version);

// "ncclAllReduce failed: unhandled cuda error (1): <NCCL's own last error>. <What to do>". Ok for
// kSuccess and kInProgress.
//   kInvalidArgument  arguments or usage, such as two ranks on one GPU
//   kPeerLost, kTimeout, kSystem  likewise
Status error_of(const Functions& functions, const char* what, int code, Comm comm);

// ncclDataType_t of those that this version can reduce; none where it cannot. Those are moved as
// bytes (kTypeUint8).
std::optional<int> type_of(DataType dtype, int version);
inline constexpr int kTypeUint8 = 1;

// ncclRedOp_t; none where NCCL has none (BAND, BOR, BXOR). AVG divides the sum of integers, toward
// zero; floats it multiplies by 1 / size before the sum, in their own type, which is coarse for
// float8. MIN and MAX of a NaN and a number are the number.
std::optional<int> op_of(ReduceOp op);

}  // namespace ciuic::nccl
