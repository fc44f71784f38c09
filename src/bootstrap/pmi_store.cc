// SPDX-License-Identifier: Apache-2.0
// pmi_store.cc: which version of PMI a launcher speaks.

#include "bootstrap/pmi_store.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "base/printable.h"
#include "bootstrap/pmi1_space.h"
#include "bootstrap/pmi2_space.h"
#include "bootstrap/pmi_pipe.h"

namespace ciuic::bootstrap {

// The version of the launcher's answer; 0 where it refuses. Said in lines in both versions.
static Result<int> settle_version(PmiPipe* pipe, int version, TimeNs deadline) {
  CIUIC_RETURN_IF_ERROR(pipe->send(
      fmt::format("cmd=init pmi_version={} pmi_subversion={}\n", version, version == 1 ? 1 : 0),
      deadline));
  Result<std::string> answer = pipe->read_line(deadline);
  if (!answer.ok()) return answer.status();
  if (pmi_field(*answer, ' ', "cmd") != "response_to_init") {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("PMI: \"{}\" where response_to_init was expected", printable(*answer, 128)));
  }
  if (pmi_field(*answer, ' ', "rc") != "0") return 0;
  const auto settled = static_cast<int>(pmi_number(pmi_field(*answer, ' ', "pmi_version"), 9));
  return settled == version ? settled : 0;
}

Result<std::shared_ptr<LauncherSession>> open_pmi(const PmiOptions& options, TimeNs deadline) {
  Result<PmiPipe> pipe = PmiPipe::open(options.fd);
  if (!pipe.ok()) return pipe.status();
  for (const int version : {options.version, 3 - options.version}) {
    Result<int> settled = settle_version(&*pipe, version, deadline);
    if (!settled.ok()) return settled.status();
    if (*settled == 0) continue;
    Result<std::unique_ptr<LauncherSpace>> space =
        version == 1 ? begin_pmi1(std::move(*pipe), deadline)
                     : begin_pmi2(std::move(*pipe), options.job, options.rank, deadline);
    if (!space.ok()) return space.status();
    return std::make_shared<LauncherSession>(std::move(*space));
  }
  return Status(StatusCode::kMismatch, "PMI: the launcher speaks neither version 1 nor version 2");
}

Result<std::shared_ptr<LauncherSession>> process_pmi_session(const PmiOptions& options,
                                                             TimeNs deadline) {
  static std::mutex mutex;
  static std::map<int, std::shared_ptr<LauncherSession>> sessions;
  const std::lock_guard lock(mutex);
  const auto found = sessions.find(options.fd);
  if (found != sessions.end()) return found->second;
  Result<std::shared_ptr<LauncherSession>> session = open_pmi(options, deadline);
  if (session.ok()) sessions[options.fd] = *session;
  return session;
}

}  // namespace ciuic::bootstrap
