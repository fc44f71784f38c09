// SPDX-License-Identifier: Apache-2.0
// pmi_pipe.h: the descriptor at which a launcher speaks PMI, and the two forms of what is said.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/clock.h"
#include "ciuic/status.h"
#include "drivers/posix/unique_fd.h"

namespace ciuic::bootstrap {

class PmiPipe {
 public:
  // `fd` stays the caller's; a duplicate of it is used, since an MPI library in this process may
  // close PMI_FD and the number be given out anew.
  static Result<PmiPipe> open(int fd);

  // A line, without its end.
  Result<std::string> read_line(TimeNs deadline);

  // As many bytes as the six digits before them say.
  Result<std::string> read_counted(TimeNs deadline);

  Status send(const std::string& bytes, TimeNs deadline);

  // False in a forked child, to which the launcher does not speak.
  bool is_own() const;

 private:
  Status read_more(TimeNs deadline);

  posix::UniqueFd fd_;
  pid_t owner_ = 0;
  std::string input_;
};

// The value of `name` in "cmd=put_result rc=0 ..." (separator ' ') or "cmd=put-response;rc=0;"
// (separator ';'); empty where it is not there.
std::string pmi_field(const std::string& text, char separator, const std::string& name);

// The number in the text, `limit` at most; 0 where it is none.
uint32_t pmi_number(const std::string& text, uint32_t limit);

}  // namespace ciuic::bootstrap
