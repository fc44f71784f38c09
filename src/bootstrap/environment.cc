// SPDX-License-Identifier: Apache-2.0
// environment.cc: the variables of the launchers that people use.

#include "bootstrap/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>
#include <string_view>

#include "base/printable.h"

namespace ciuic::bootstrap {

// A launcher is recognised by `rank`, `size` and `sign`; the rest may be missing. Of two names with
// a comma between them the first that is set counts.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;  // null: it tells by other means
  const char* sign;  // null: none needed
  const char* local_rank;
  const char* local_size;
  bool one_a_host;  // the numbers count pods or machines, with one process each
};

// The innermost first: torchrun started by srun sets its own variables beside Slurm's. A Slurm
// batch script runs once and has SLURM_PROCID too, but no step.
static constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", false},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr,
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", false},
    {"PMI", "PMI_RANK", "PMI_SIZE", nullptr, "MPI_LOCALRANKID,SLURM_LOCALID", "MPI_LOCALNRANKS",
     false},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS,SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_LOCALID",
     nullptr, false},
    {"PMIx", "PMIX_RANK", nullptr, "PMIX_NAMESPACE", nullptr, nullptr, false},
    {"Kubernetes Indexed Job", "JOB_COMPLETION_INDEX", "WORLD_SIZE", nullptr, nullptr, nullptr,
     true},
    {"SkyPilot", "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES", nullptr, nullptr, nullptr, true},
    {"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", nullptr, nullptr, nullptr, false},
};

// A variable that is set, of those that `names` lists; the last of them where none is.
struct Found {
  std::string name;
  std::optional<std::string> value;
};

static Found look_up(const Variables& variables, const char* names) {
  Found found;
  std::istringstream list(names);
  while (std::getline(list, found.name, ',')) {
    found.value = variables(found.name.c_str());
    if (found.value) break;
  }
  return found;
}

static Result<int> number_of(const Variables& variables, const char* names) {
  if (names == nullptr) return -1;
  const auto [name, text] = look_up(variables, names);
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

// Of SLURM_STEP_TASKS_PER_NODE, "4(x2),3", the one of this node; -1 where it is not told.
static int slurm_local_size(const Variables& variables) {
  const auto list = variables("SLURM_STEP_TASKS_PER_NODE");
  Result<int> node = number_of(variables, "SLURM_NODEID");
  if (!list || !node.ok() || *node < 0) return -1;
  int64_t left = *node;
  std::istringstream parts(*list);
  for (std::string part; std::getline(parts, part, ',');) {
    int tasks = 0;
    int nodes = 1;
    const char* end = part.data() + part.size();
    const auto number = std::from_chars(part.data(), end, tasks);
    if (number.ec != std::errc{}) return -1;
    if (number.ptr != end) {  // "(x2)"
      if (!std::string_view(number.ptr, end).starts_with("(x")) return -1;
      const auto times = std::from_chars(number.ptr + 2, end, nodes);
      if (times.ec != std::errc{} || std::string_view(times.ptr, end) != ")") return -1;
    }
    if (left < nodes) return tasks;
    left -= nodes;
  }
  return -1;
}

static Status nothing_found() {
  std::string tried;
  for (const Launcher& launcher : kLaunchers) {
    tried += fmt::format("{}{} ({}", tried.empty() ? "" : "; ", launcher.name, launcher.rank);
    for (const char* more : {launcher.size, launcher.sign}) {
      if (more == nullptr) continue;
      std::string names = more;  // of which the first one that is set counts
      if (const size_t comma = names.find(','); comma != names.npos)
        names.replace(comma, 1, " or ");
      tried += ", " + names;
    }
    tried += ")";
  }
  return Status(
      StatusCode::kUnavailable,
      "no launcher was found in the environment that tells rank and size. Looked for: " + tried +
          ". Start with `ciuic run -n N program`, torchrun, mpiexec or srun, or pass "
          "rank and size");
}

static bool is_there(const Variables& variables, const Launcher& launcher) {
  for (const char* names : {launcher.rank, launcher.size, launcher.sign}) {
    if (names != nullptr && !look_up(variables, names).value) return false;
  }
  return true;
}

// Where the numbers may not count processes.
static std::string warning_of(const Launched& launched) {
  if (launched.launcher != "RANK and WORLD_SIZE") return "";
  return fmt::format(
      "RANK={} and WORLD_SIZE={} are set, but LOCAL_RANK is not and no launcher was found: if "
      "they count machines, as cluster schedulers set them, only one process a machine takes "
      "part. Start the processes of each machine with torchrun (--nnodes={} --node-rank={} "
      "--nproc-per-node=...), or set LOCAL_RANK too",
      launched.rank, launched.size, launched.size, launched.rank);
}

Result<Launched> read_launcher(const Variables& variables) {
  for (const Launcher& launcher : kLaunchers) {
    if (!is_there(variables, launcher)) continue;
    Launched launched;
    launched.launcher = launcher.name;
    const std::pair<const char*, int*> fields[] = {{launcher.rank, &launched.rank},
                                                   {launcher.size, &launched.size},
                                                   {launcher.local_rank, &launched.local_rank},
                                                   {launcher.local_size, &launched.local_size}};
    for (const auto& [names, value] : fields) {
      Result<int> number = number_of(variables, names);
      if (!number.ok()) return number.status();
      *value = *number;
    }
    if (launcher.size != nullptr && launched.rank >= launched.size) {
      return Status(
          StatusCode::kInvalidArgument,
          fmt::format("{}={} is outside {}={}", look_up(variables, launcher.rank).name,
                      launched.rank, look_up(variables, launcher.size).name, launched.size));
    }
    if (launcher.one_a_host) launched.local_rank = 0;
    if (launcher.one_a_host) launched.local_size = 1;
    const bool in_step = variables("SLURM_STEP_ID") && launched.local_rank >= 0;
    if (in_step && launched.local_size < 0) launched.local_size = slurm_local_size(variables);
    launched.warning = warning_of(launched);
    return launched;
  }
  return nothing_found();
}

int pmi_version(const Variables& variables) {
  const bool srun = variables("SLURM_STEP_ID") && variables("PMI_JOBID");
  // Hydra, which may have been started by srun, sets this one.
  return srun && !variables("MPI_LOCALRANKID") ? 2 : 1;
}

}  // namespace ciuic::bootstrap
