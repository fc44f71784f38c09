// SPDX-License-Identifier: Apache-2.0
// environment.cc: the variables of the launchers that people use.

#include "bootstrap/environment.h"

#include <fmt/format.h>

#include <charconv>

#include "base/printable.h"
namespace ciuic::bootstrap {

// A launcher is recognised by `rank`, `size` and `sign`; the rest may be missing.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* sign;  // null: none needed
  const char* local_rank;
  const char* local_size;
};

// The innermost first: torchrun started by srun sets its own variables beside Slurm's. A Slurm
// batch script runs once and has SLURM_PROCID too, but no step.
static constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr,
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE", nullptr, "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_LOCALID", nullptr},
    {"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", nullptr, nullptr, nullptr},
};

static Result<int> number_of(const Variables& variables, const char* name) {
  if (name == nullptr) return -1;
  const std::optional<std::string> text = variables(name);
  if (!text) return -1;
  int value = -1;
  const char* end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc{} || rest != end || value < 0) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{}={} is no number from 0 up", name, printable(*text, 64)));
  }
  return value;
}

static Status nothing_found() {
  std::string tried;
  for (const Launcher& launcher : kLaunchers) {
    tried += fmt::format("{}{} ({}, {}{}{})", tried.empty() ? "" : "; ", launcher.name,
                         launcher.rank, launcher.size, launcher.sign != nullptr ? ", " : "",
                         launcher.sign != nullptr ? launcher.sign : "");
  }
  return Status(StatusCode::kInvalidArgument,
                "no rank and size: none were given, and no launcher was found in the environment. "
                "Looked for: " +
                    tried + ". Start with `ciuic run -n N program`, or pass rank and size");
}

Result<Launched> read_launcher(const Variables& variables) {
  for (const Launcher& launcher : kLaunchers) {
    if (!variables(launcher.rank) || !variables(launcher.size)) continue;
    if (launcher.sign != nullptr && !variables(launcher.sign)) continue;
    Launched launched;
    launched.launcher = launcher.name;
    const std::pair<const char*, int*> fields[] = {{launcher.rank, &launched.rank},
                                                   {launcher.size, &launched.size},
                                                   {launcher.local_rank, &launched.local_rank},
                                                   {launcher.local_size, &launched.local_size}};
    for (const auto& [name, value] : fields) {
      Result<int> number = number_of(variables, name);
      if (!number.ok()) return number.status();
      *value = *number;
    }
    if (launched.rank >= launched.size) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{}={} is outside {}={}", launcher.rank, launched.rank,
                                launcher.size, launched.size));
    }
    if (launcher.local_rank == nullptr) {
      launched.warning = fmt::format(
          "RANK={} and WORLD_SIZE={} are set, but LOCAL_RANK is not and no launcher was found: if "
          "they count machines, as cluster schedulers set them, only one process a machine takes "
          "part. Start the processes of each machine with torchrun (--nnodes={} --node-rank={} "
          "--nproc-per-node=...), or set LOCAL_RANK too",
          launched.rank, launched.size, launched.size, launched.rank);
    }
    return launched;
  }
  return nothing_found();
}

}  // namespace ciuic::bootstrap
