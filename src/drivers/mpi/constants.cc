// SPDX-License-Identifier: Apache-2.0
// constants.cc: the values that stand in MPI's headers: those of the standard ABI, and by name.

#include <fmt/format.h>

#include <cstring>
#include <iterator>

#include "drivers/mpi/mpi.h"

namespace ciuic::mpi {

// MPI: A Message-Passing Interface Standard, version 5.0, chapter 20 (Application Binary
// Interface).
const Names& abi_constants() {
  static const Names names = {
      {"COMM_WORLD", 0x101},
      {"BYTE", 0x247},
      {"FLOAT", 0x210},
      {"DOUBLE", 0x214},
      {"INT8_T", 0x240},
      {"UINT8_T", 0x241},
      {"INT16_T", 0x248},
      {"UINT16_T", 0x249},
      {"INT32_T", 0x250},
      {"UINT32_T", 0x251},
      {"INT64_T", 0x258},
      {"UINT64_T", 0x259},
      {"SUM", 0x21},
      {"MIN", 0x22},
      {"MAX", 0x23},
      {"PROD", 0x24},
      {"BAND", 0x28},
      {"BOR", 0x29},
      {"BXOR", 0x2a},
      {"ERRORS_RETURN", 0x143},
      {"IN_PLACE", 1},
      {"ANY_SOURCE", -1},
      {"ANY_TAG", -2},
      {"THREAD_SERIALIZED", 2048},
      {"THREAD_MULTIPLE", 4096},
      {"TAG_UB", 501},
      {"HANDLE_BYTES", 8},
      {"STATUS_BYTES", 32},
      {"SOURCE_OFFSET", 0},
      {"TAG_OFFSET", 4},
  };
  return names;
}

namespace {

struct NamedType {
  DataType dtype;
  const char* name;
};

// Complex numbers and truth values are reduced by functions of our own, in bytes.
constexpr NamedType kTypes[] = {
    {DataType::kFloat32, "FLOAT"}, {DataType::kFloat64, "DOUBLE"},
    {DataType::kInt8, "INT8_T"},   {DataType::kUInt8, "UINT8_T"},
    {DataType::kInt16, "INT16_T"}, {DataType::kUInt16, "UINT16_T"},
    {DataType::kInt32, "INT32_T"}, {DataType::kUInt32, "UINT32_T"},
    {DataType::kInt64, "INT64_T"}, {DataType::kUInt64, "UINT64_T"},
};

struct NamedOp {
  ReduceOp op;
  const char* name;
};

constexpr NamedOp kOps[] = {
    {ReduceOp::kSum, "SUM"},      {ReduceOp::kMin, "MIN"},   {ReduceOp::kMax, "MAX"},
    {ReduceOp::kProduct, "PROD"}, {ReduceOp::kBAnd, "BAND"}, {ReduceOp::kBOr, "BOR"},
    {ReduceOp::kBXor, "BXOR"},
};

}  // namespace

Result<Constants> constants_from(const Names& names) {
  std::string missing;
  const auto value = [&](const char* name) -> int64_t {
    const auto found = names.find(name);
    if (found != names.end()) return found->second;
    missing += missing.empty() ? name : fmt::format(", {}", name);
    return 0;
  };
  const auto handle = [&](const char* name) { return static_cast<Handle>(value(name)); };
  Constants all;
  all.comm_world = handle("COMM_WORLD");
  all.byte = handle("BYTE");
  for (const NamedType& type : kTypes)
    all.types[static_cast<size_t>(type.dtype)] = handle(type.name);
  for (const NamedOp& op : kOps) all.ops[static_cast<size_t>(op.op)] = handle(op.name);
  all.errors_return = handle("ERRORS_RETURN");
  all.in_place = reinterpret_cast<void*>(handle("IN_PLACE"));
  all.any_source = static_cast<int>(value("ANY_SOURCE"));
  all.any_tag = static_cast<int>(value("ANY_TAG"));
  all.thread_serialized = static_cast<int>(value("THREAD_SERIALIZED"));
  all.thread_multiple = static_cast<int>(value("THREAD_MULTIPLE"));
  all.tag_ub = static_cast<int>(value("TAG_UB"));
  all.handle_bytes = static_cast<size_t>(value("HANDLE_BYTES"));
  all.status_bytes = static_cast<size_t>(value("STATUS_BYTES"));
  all.source_offset = static_cast<size_t>(value("SOURCE_OFFSET"));
  all.tag_offset = static_cast<size_t>(value("TAG_OFFSET"));
  if (names.count("MOST_COUNT") > 0) all.most_count = static_cast<int>(value("MOST_COUNT"));
  if (!missing.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("MPI's constants lack {}; give those of this library's header, or "
                              "none for a library with the standard ABI",
                              missing));
  }
  const size_t last = std::max(all.source_offset, all.tag_offset) + sizeof(int);
  const bool is_sound = (all.handle_bytes == sizeof(int) || all.handle_bytes == sizeof(Handle)) &&
                        last <= all.status_bytes && all.status_bytes <= kMostStatusBytes &&
                        all.most_count >= 16;
  if (is_sound) return all;
  return Status(StatusCode::kInvalidArgument,
                fmt::format("MPI's constants cannot be: handles of {} bytes, a status of {} with "
                            "the source at {} and the tag at {}",
                            all.handle_bytes, all.status_bytes, all.source_offset, all.tag_offset));
}

std::vector<std::byte> pack_handles(const Constants& constants, std::span<const Handle> handles) {
  std::vector<std::byte> bytes(handles.size() * constants.handle_bytes);
  std::byte* place = bytes.data();
  for (const Handle handle : handles) {
    // Little-endian: the low half comes first.
    std::memcpy(place, &handle, constants.handle_bytes);
    place += constants.handle_bytes;
  }
  return bytes;
}

}  // namespace ciuic::mpi
