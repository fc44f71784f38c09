// SPDX-License-Identifier: Apache-2.0
// pmix.h: PMIx by libpmix, opened at run time: no part of the library links it, or has its headers.
//
// The structs are those of the PMIx standard from version 3 on, as far as they are used (OpenPMIx,
// include/pmix_common.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ciuic/status.h"

namespace ciuic::pmix {

inline constexpr int kSuccess = 0;
inline constexpr int kNotFound = -46;
inline constexpr int kOperationSucceeded = -157;  // at once, so that no callback comes

inline constexpr uint16_t kBool = 1;  // of Value::type
inline constexpr uint16_t kString = 3;
inline constexpr uint16_t kUint16 = 13;
inline constexpr uint16_t kUint32 = 14;

inline constexpr uint8_t kGlobal = 3;              // scope: all processes may get it
inline constexpr uint32_t kAnyRank = 0xFFFFFFFEu;  // what is of the whole job

inline constexpr const char* kCollectData =
    "pmix.collect";                                       // to a fence: hand all out that was put
inline constexpr const char* kJobSize = "pmix.job.size";  // uint32

struct Process {
  char job[256] = {};
  uint32_t rank = 0;
};

struct Value {
  uint16_t type = 0;
  union Data {
    bool flag;
    uint16_t uint16;
    uint32_t uint32;
    const char* string;
    uint64_t words[3];  // the largest of its members has three
  } data = {.words = {0, 0, 0}};
};

struct Info {
  char key[512] = {};
  uint32_t flags = 0;
  Value value;
};

static_assert(sizeof(Process) == 260 && sizeof(Value) == 32 && sizeof(Info) == 552);

using FenceCallback = void (*)(int status, void* argument);
using GetCallback = void (*)(int status, Value* value, void* argument);

// The functions that are used. A test may stand in for any of them.
struct Functions {
  const char* (*get_version)() = nullptr;
  const char* (*error_string)(int status) = nullptr;
  int (*init)(Process* self, Info* infos, size_t count) = nullptr;  // counted, as is finalize
  int (*finalize)(const Info* infos, size_t count) = nullptr;
  int (*put)(uint8_t scope, const char* key, Value* value) = nullptr;
  int (*commit)() = nullptr;
  int (*fence_nb)(const Process* processes, size_t process_count, const Info* infos, size_t count,
                  FenceCallback callback, void* argument) = nullptr;
  int (*get_nb)(const Process* process, const char* key, const Info* infos, size_t count,
                GetCallback callback, void* argument) = nullptr;
};

// An information of that name that is true.
Info true_info(const char* key);

// The library that this process has already, else the first of `names` that opens; it stays open
// for the life of the process. kUnavailable: none does, with what each said; one without these
// functions, or of a version that is not known.
Result<Functions> open_libpmix(const std::vector<std::string>& names);

// kUnavailable: `version`, as libpmix tells it ("OpenPMIx 4.2.2 (...)"), is none that is known.
Status check_version(const std::string& version);

}  // namespace ciuic::pmix
