// SPDX-License-Identifier: Apache-2.0
// mpi_join.cc: rank, size and a meeting place from MPI.

#include "communicator/mpi_join.h"

#include <fmt/format.h>

#include <utility>

#include "base/json_text.h"
#include "bootstrap/environment.h"
#include "bootstrap/fenced_store.h"
#include "ciuic/mpi.h"

namespace ciuic {

namespace {

// Broadcasts of MPI's from its rank 0, which is the group's.
class MpiFence final : public Store, public bootstrap::FencedStore {
 public:
  MpiFence(std::shared_ptr<backend::MpiProcess> process, mpi::Handle communicator)
      : process_(std::move(process)), communicator_(communicator) {}

  Status set(const std::string&, const std::string&) override { return no_keys(); }
  Result<std::string> get(const std::string&, int64_t) override { return no_keys(); }
  Result<int64_t> add(const std::string&, int64_t) override { return no_keys(); }
  std::string name() const override { return "MPI"; }
  bool is_private() const override { return true; }

  Result<std::string> broadcast(const std::string* value, TimeNs deadline) override {
    ++broadcasts_;
    return process_->broadcast(communicator_, value, deadline);
  }
  uint32_t count() const override { return broadcasts_; }

 private:
  static Status no_keys() {
    return {StatusCode::kUnsupported, "MPI's meeting place holds no keys"};
  }

  std::shared_ptr<backend::MpiProcess> process_;
  mpi::Handle communicator_;
  uint32_t broadcasts_ = 0;
};

// A library that was not started by this launcher takes itself for alone.
Status check_launcher(const backend::MpiProcess& process, int size) {
  Result<bootstrap::Launched> launched = bootstrap::read_launcher(environment_variable);
  if (!launched.ok() || launched->size < 0 || launched->size == size) return {};
  if (launched->launcher == "torchrun" || launched->launcher == "RANK and WORLD_SIZE") {
    return {StatusCode::kUnavailable,
            fmt::format("these {} ranks were started by torchrun, `ciuic run` or the like, and not "
                        "by MPI, which knows of {}: start them with `mpiexec -n {} python ...`. "
                        "Nothing was sent.",
                        launched->size, size, launched->size)};
  }
  return {StatusCode::kUnavailable,
          fmt::format(
              "{} started {} ranks, and the MPI of this process ({}, {}) knows of {}: it is "
              "another MPI than the one that launched. Start with the mpiexec of this MPI, "
              "or have the launcher's MPI taken: CIUIC_MPI_LIBRARY for one with the ABI of "
              "MPI 5, MPI4PY_LIBMPI for any other. Nothing was sent.",
              launched->launcher, launched->size, process.version(), process.library().path, size)};
}

}  // namespace

void leave_mpi() { backend::MpiProcess::leave_all(); }

std::string MpiJoin::description() const {
  return fmt::format(
      "{{\"library\":{},\"path\":{},\"abi\":{},\"cuda_aware\":{},\"thread_level\":{},"
      "\"initialised_by\":{}}}",
      json_quoted(process->version()), json_quoted(process->library().path),
      process->library().has_abi, process->library().is_cuda_aware,
      json_quoted(process->thread_level()), json_quoted(process->is_ours() ? "ciuic" : "program"));
}

Result<MpiJoin> begin_mpi(CommunicatorOptions* options, const Config& config, TimeNs deadline) {
  auto process = backend::MpiProcess::of(options->mpi, config.mpi_library);
  if (!process.ok()) return process.status();
  MpiJoin join{.process = *process, .make = {}};
  CIUIC_RETURN_IF_ERROR(join.process->check_thread());
  const mpi::Handle given = options->mpi.communicator;
  const bool is_world = given == 0 || given == join.process->library().constants.comm_world;
  Result<int> size = join.process->size_of(is_world ? 0 : given);
  if (!size.ok()) return size.status();
  if (is_world) CIUIC_RETURN_IF_ERROR(check_launcher(*join.process, *size));
  if (options->size >= 0 && options->size != *size) {
    return Status(StatusCode::kMismatch,
                  fmt::format("a group of {} was asked for, and the MPI communicator has {} ranks; "
                              "give one that has as many, or no size",
                              options->size, *size));
  }
  Result<mpi::Handle> own = join.process->duplicate_of(is_world ? 0 : given, deadline);
  if (!own.ok()) return own.status();
  if (options->rank >= 0) own = join.process->reordered(*own, options->rank);
  if (!own.ok()) return own.status();
  Result<int> rank = join.process->rank_in(*own);
  if (!rank.ok()) return rank.status();
  if (options->rank >= 0 && options->rank != *rank) {
    return Status(StatusCode::kMismatch,
                  fmt::format("rank {} was given, and others give the same one, or leave one out: "
                              "ranks must be 0 to {}, each once",
                              options->rank, *size - 1));
  }
  const bool is_shared = is_world && options->rank < 0;  // later groups meet there, too
  join.make = [made_by = join.process, communicator = *own, is_shared,
               place = *rank]() -> Result<mpi::Handle> {
    if (!is_shared) return communicator;
    return made_by->reordered(communicator, place);
  };
  options->rank = *rank;
  options->size = *size;
  if (options->store == nullptr && *size > 1) {
    options->store = std::make_shared<MpiFence>(join.process, *own);
  }
  return join;
}

}  // namespace ciuic
