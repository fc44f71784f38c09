// SPDX-License-Identifier: Apache-2.0
// find_meeting.cc: which rank this is, and the store in which it meets the others.

#include <fmt/format.h>

#include <charconv>

#include "base/log.h"
#include "bootstrap/environment.h"
#include "bootstrap/pmi_store.h"
#include "bootstrap/pmix_space.h"
#include "communicator/join.h"

namespace ciuic {

static Status check_rank(int rank, int size) {
  if (size >= 1 && rank >= 0 && rank < size) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("rank {} is outside a group of {} (0 to {})", rank, size, size - 1)};
}

// What was looked for in vain. Python programs look for two things more, before they come here.
static Status nowhere() {
  const auto state = [](const char* name) {
    return environment_variable(name) ? "set" : "not set";
  };
  std::string text = fmt::format(
      "the ranks have no place to meet. Tried, in this order: the argument store= (not given); "
      "torch.distributed's store (of Python programs; not initialised); CIUIC_STORE ({}); "
      "MASTER_ADDR and MASTER_PORT ({}; torch's store, for Python programs alone); PMI_FD ({}); "
      "PMIX_NAMESPACE ({}). ",
      state("CIUIC_STORE"), state("MASTER_ADDR"), state("PMI_FD"), state("PMIX_NAMESPACE"));
  text += environment_variable("SLURM_STEP_ID")
              ? "Start with srun --mpi=pmi2 or --mpi=pmix, or set CIUIC_STORE=file:///directory, "
                "one that all nodes have and that is new for each job"
              : "Start the program with ciuic run, torchrun, mpiexec or srun --mpi=pmi2, or give "
                "store='tcp://host:port' or 'file:///directory'";
  return {StatusCode::kUnavailable, text};
}

static int number_in(const std::string& text) {
  int number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

static Result<std::shared_ptr<Store>> pmi_store(const std::string& fd, TimeNs deadline) {
  const bootstrap::PmiOptions options{
      .fd = number_in(fd),
      .version = bootstrap::pmi_version(environment_variable),
      .rank = number_in(environment_variable("PMI_RANK").value_or("0")),
      .job = environment_variable("PMI_JOBID").value_or("")};
  auto session = bootstrap::process_pmi_session(options, deadline);
  if (!session.ok()) return session.status();
  return std::shared_ptr<Store>(std::make_shared<bootstrap::LauncherStore>(std::move(*session)));
}

static Result<std::shared_ptr<Store>> pmix_store(TimeNs deadline) {
  auto process = bootstrap::process_pmix(environment_variable, deadline);
  if (!process.ok()) return process.status();
  return std::shared_ptr<Store>(
      std::make_shared<bootstrap::LauncherStore>(std::move(process->session)));
}

static Result<std::shared_ptr<Store>> find_store(const CommunicatorOptions& options,
                                                 const Config& config, TimeNs deadline) {
  if (options.store != nullptr) return options.store;
  if (!config.store.empty()) {
    Result<std::unique_ptr<Store>> store = open_store(config.store, left_ms(deadline, now_ns()));
    if (!store.ok()) return store.status();
    return std::shared_ptr<Store>(std::move(*store));
  }
  if (const auto fd = environment_variable("PMI_FD")) return pmi_store(*fd, deadline);
  if (environment_variable("PMIX_NAMESPACE")) return pmix_store(deadline);
  return nowhere();
}

Result<Meeting> find_meeting(const CommunicatorOptions& options, const Config& config,
                             TimeNs deadline) {
  Meeting meeting{.rank = options.rank, .size = options.size, .store = nullptr};
  if (options.size < 0) {
    Result<bootstrap::Launched> launched = bootstrap::find_launcher(environment_variable, deadline);
    if (!launched.ok()) return launched.status();
    if (!launched->warning.empty()) log_warn("{}", launched->warning);
    meeting.rank = launched->rank;
    meeting.size = launched->size;
  }
  CIUIC_RETURN_IF_ERROR(check_rank(meeting.rank, meeting.size));
  if (meeting.size == 1) return meeting;
  Result<std::shared_ptr<Store>> store = find_store(options, config, deadline);
  if (!store.ok()) return store.status();
  meeting.store = std::move(*store);
  return meeting;
}

}  // namespace ciuic
