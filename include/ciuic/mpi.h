// SPDX-License-Identifier: Apache-2.0
// mpi.h: backend "mpi" in a program that uses MPI itself.
//
// A program that includes its <mpi.h> first also gets mpi_of_this_program(), which tells Ciuic the
// values of that header, whichever MPI it is of.
#pragma once

#include "ciuic/export.h"
#include "ciuic/options.h"

namespace ciuic {

// To be called before the program finalises MPI, when no communicator is used any more. Finalises
// MPI where Ciuic initialised it. Where an operation has failed in MPI, which would then wait for
// ever, ends the MPI job. Else called at exit.
CIUIC_EXPORT void leave_mpi();

#if defined(MPI_VERSION) && defined(MPI_COMM_WORLD)

// CommunicatorOptions::mpi for a group of the ranks of `communicator`. `library`: the path of the
// MPI library, or the name by which the loader has it ("libmpi.so.40").
inline MpiOptions mpi_of_this_program(MPI_Comm communicator, const std::string& library) {
  const auto handle = [](auto value) {
    uintptr_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    return static_cast<int64_t>(bits);
  };
  MPI_Status status{};
  const auto offset = [&status](const int* member) {
    return static_cast<int64_t>(reinterpret_cast<const char*>(member) -
                                reinterpret_cast<const char*>(&status));
  };
  MpiOptions options;
  options.libraries = {library};
  options.communicator = static_cast<uintptr_t>(handle(communicator));
  options.constants = {
      {"COMM_WORLD", handle(MPI_COMM_WORLD)},
      {"BYTE", handle(MPI_BYTE)},
      {"FLOAT", handle(MPI_FLOAT)},
      {"DOUBLE", handle(MPI_DOUBLE)},
      {"INT8_T", handle(MPI_INT8_T)},
      {"UINT8_T", handle(MPI_UINT8_T)},
      {"INT16_T", handle(MPI_INT16_T)},
      {"UINT16_T", handle(MPI_UINT16_T)},
      {"INT32_T", handle(MPI_INT32_T)},
      {"UINT32_T", handle(MPI_UINT32_T)},
      {"INT64_T", handle(MPI_INT64_T)},
      {"UINT64_T", handle(MPI_UINT64_T)},
      {"SUM", handle(MPI_SUM)},
      {"MIN", handle(MPI_MIN)},
      {"MAX", handle(MPI_MAX)},
      {"PROD", handle(MPI_PROD)},
      {"BAND", handle(MPI_BAND)},
      {"BOR", handle(MPI_BOR)},
      {"BXOR", handle(MPI_BXOR)},
      {"ERRORS_RETURN", handle(MPI_ERRORS_RETURN)},
      {"IN_PLACE", static_cast<int64_t>(reinterpret_cast<intptr_t>((const void*)MPI_IN_PLACE))},
      {"ANY_SOURCE", MPI_ANY_SOURCE},
      {"ANY_TAG", MPI_ANY_TAG},
      {"THREAD_SERIALIZED", MPI_THREAD_SERIALIZED},
      {"THREAD_MULTIPLE", MPI_THREAD_MULTIPLE},
      {"TAG_UB", MPI_TAG_UB},
      {"HANDLE_BYTES", sizeof(MPI_Comm)},
      {"STATUS_BYTES", sizeof(MPI_Status)},
      {"SOURCE_OFFSET", offset(&status.MPI_SOURCE)},
      {"TAG_OFFSET", offset(&status.MPI_TAG)}};
  return options;
}

#endif

}  // namespace ciuic
