// SPDX-License-Identifier: Apache-2.0
// pmix_space.h: PMIx, as Open MPI's mpiexec and `srun --mpi=pmix` speak it, through libpmix.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bootstrap/environment.h"
#include "bootstrap/launcher_session.h"
#include "drivers/pmix/pmix.h"

namespace ciuic::bootstrap {

// Where libpmix may be: beside what the launcher says of itself, then where the loader looks.
std::vector<std::string> pmix_libraries(const Variables& variables);

// A process of a PMIx job. PMIx counts PMIx_Init() and PMIx_Finalize(), so an MPI library in this
// process has a conversation of its own.
class PmixSpace final : public LauncherSpace {
 public:
  // kUnavailable: no server answers.
  static Result<std::unique_ptr<PmixSpace>> begin(const pmix::Functions& functions);

  // A launcher takes a process that ends without PMIx_Finalize() for one that has failed; so it is
  // called here, except in a forked child.
  ~PmixSpace() override;

  int rank() const { return static_cast<int>(self_.rank); }

  // Of the job. kUnavailable: the launcher does not tell.
  Result<int> size(TimeNs deadline);

  Status put(const std::string& key, const std::string& value, TimeNs deadline) override;
  Status fence(TimeNs deadline) override;
  Result<std::string> get(const std::string& key, TimeNs deadline) override;
  size_t value_bytes() const override;
  const char* name() const override { return "PMIx"; }

 private:
  explicit PmixSpace(const pmix::Functions& functions) : functions_(functions) {}
  struct Fetched;
  Result<Fetched> fetch(const pmix::Process& process, const char* key, TimeNs deadline);
  Status failed(const char* call, int status) const;

  pmix::Functions functions_;
  pmix::Process self_;
  int owner_ = 0;
};

struct PmixProcess {
  int rank = -1;
  int size = -1;
  std::shared_ptr<LauncherSession> session;
};

// This process's, made by the first call. kUnavailable: no libpmix, with what was tried.
Result<PmixProcess> process_pmix(const Variables& variables, TimeNs deadline);

// read_launcher(), and what only PMIx itself tells.
Result<Launched> find_launcher(const Variables& variables, TimeNs deadline);

}  // namespace ciuic::bootstrap
