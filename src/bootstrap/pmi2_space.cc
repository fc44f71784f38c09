// SPDX-License-Identifier: Apache-2.0
// pmi2_space.cc: the texts of PMI-2.

#include "bootstrap/pmi2_space.h"

#include <fmt/format.h>

#include "base/printable.h"

namespace ciuic::bootstrap {

namespace {

// PMI2_MAX_VALLEN of every launcher, with a zero at the end.
constexpr size_t kValueBytes = 1022;

class Pmi2Space final : public LauncherSpace {
 public:
  explicit Pmi2Space(PmiPipe pipe) : pipe_(std::move(pipe)) {}

  // As in PMI-1: a process that ends without it has failed.
  ~Pmi2Space() override {
    if (!pipe_.is_own()) return;
    [[maybe_unused]] const Result<std::string> bye =
        ask("finalize", "", deadline_after(now_ns(), 1000));
  }

  Status begin(const std::string& job, int rank, TimeNs deadline) {
    if (job.find(';') != std::string::npos) {
      return {StatusCode::kInvalidArgument,
              fmt::format("PMI: PMI_JOBID={} is no name of a job", printable(job, 64))};
    }
    return ask("fullinit", fmt::format("pmijobid={};pmirank={};threaded=FALSE;", job, rank),
               deadline)
        .status();
  }

  Status put(const std::string& key, const std::string& value, TimeNs deadline) override {
    return ask("kvs-put", fmt::format("key={};value={};", key, value), deadline).status();
  }

  Status fence(TimeNs deadline) override {
    const Status met = ask("kvs-fence", "", deadline).status();
    if (met.code() != StatusCode::kTimeout) return met;
    return {StatusCode::kTimeout, "PMI: not all ranks of the job came to the join"};
  }

  Result<std::string> get(const std::string& key, TimeNs deadline) override {
    // An empty job is the own one; who put it is not known.
    Result<std::string> answer =
        ask("kvs-get", fmt::format("jobid=;srcid=-1;key={};", key), deadline);
    if (!answer.ok()) return answer;
    if (field(*answer, "found") != "TRUE") {
      return Status(StatusCode::kPeerLost, "PMI: all ranks met, but rank 0 left no invitation");
    }
    return field(*answer, "value");
  }

  size_t value_bytes() const override { return kValueBytes; }
  const char* name() const override { return "PMI-2"; }

 private:
  static std::string field(const std::string& text, const char* name) {
    return pmi_field(text, ';', name);
  }

  Result<std::string> ask(const std::string& command, const std::string& arguments,
                          TimeNs deadline) {
    const std::string text = fmt::format("cmd={};{}", command, arguments);
    CIUIC_RETURN_IF_ERROR(pipe_.send(fmt::format("{:6}{}", text.size(), text), deadline));
    Result<std::string> got = pipe_.read_counted(deadline);
    if (!got.ok()) return got;
    if (field(*got, "cmd") != command + "-response") {
      return Status(
          StatusCode::kInvalidArgument,
          fmt::format("PMI: \"{}\" where {}-response was expected", printable(*got, 128), command));
    }
    if (field(*got, "rc") != "0") {
      return Status(StatusCode::kResource,
                    fmt::format("PMI: the launcher refused {}: {}", command, printable(*got, 128)));
    }
    return got;
  }

  PmiPipe pipe_;
};

}  // namespace

Result<std::unique_ptr<LauncherSpace>> begin_pmi2(PmiPipe pipe, const std::string& job, int rank,
                                                  TimeNs deadline) {
  auto space = std::make_unique<Pmi2Space>(std::move(pipe));
  CIUIC_RETURN_IF_ERROR(space->begin(job, rank, deadline));
  return std::unique_ptr<LauncherSpace>(std::move(space));
}

}  // namespace ciuic::bootstrap
