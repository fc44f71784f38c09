// SPDX-License-Identifier: Apache-2.0
// pmi1_space.cc: the lines of PMI-1.

#include "bootstrap/pmi1_space.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"

namespace ciuic::bootstrap {

namespace {

constexpr uint32_t kMostValueBytes = 32 * 1024;
constexpr uint32_t kLeastBytes = 32;  // of keys and values

class Pmi1Space final : public LauncherSpace {
 public:
  explicit Pmi1Space(PmiPipe pipe) : pipe_(std::move(pipe)) {}

  // Hydra takes the end of a process that has said "init" and not "finalize" for a failure, and
  // kills the job. The launcher may be gone, or an MPI library have finalized already: nothing is
  // left to do then.
  ~Pmi1Space() override {
    if (!pipe_.is_own()) return;
    [[maybe_unused]] const Result<std::string> bye =
        ask("cmd=finalize", "finalize_ack", deadline_after(now_ns(), 1000));
  }

  Status begin(TimeNs deadline) {
    Result<std::string> maxes = ask("cmd=get_maxes", "maxes", deadline);
    if (!maxes.ok()) return maxes.status();
    const uint32_t longest = pmi_number(field(*maxes, "vallen_max"), kMostValueBytes);
    const uint32_t longest_key = pmi_number(field(*maxes, "keylen_max"), kMostValueBytes);
    if (longest < kLeastBytes || longest_key < kLeastBytes) {
      return {StatusCode::kUnsupported, "PMI: the launcher's keys or values are too short"};
    }
    value_bytes_ = longest - 2;  // a zero at the end
    Result<std::string> name = ask("cmd=get_my_kvsname", "my_kvsname", deadline);
    if (!name.ok()) return name.status();
    kvs_ = field(*name, "kvsname");
    return {};
  }

  Status put(const std::string& key, const std::string& value, TimeNs deadline) override {
    Result<std::string> answer =
        ask(fmt::format("cmd=put kvsname={} key={} value={}", kvs_, key, value), "put_result",
            deadline);
    if (!answer.ok()) return answer.status();
    if (field(*answer, "rc") == "0") return {};
    return {StatusCode::kResource, "PMI: the launcher refused a value: " + printable(*answer, 128)};
  }

  Status fence(TimeNs deadline) override {
    const Status met = ask("cmd=barrier_in", "barrier_out", deadline).status();
    if (met.code() != StatusCode::kTimeout) return met;
    return {StatusCode::kTimeout, "PMI: not all ranks of the job came to the join"};
  }

  Result<std::string> get(const std::string& key, TimeNs deadline) override {
    Result<std::string> answer =
        ask(fmt::format("cmd=get kvsname={} key={}", kvs_, key), "get_result", deadline);
    if (!answer.ok()) return answer;
    if (field(*answer, "rc") != "0") {
      return Status(StatusCode::kPeerLost, "PMI: all ranks met, but rank 0 left no invitation");
    }
    return field(*answer, "value");
  }

  size_t value_bytes() const override { return value_bytes_; }
  const char* name() const override { return "PMI-1"; }

 private:
  static std::string field(const std::string& line, const char* name) {
    return pmi_field(line, ' ', name);
  }

  Result<std::string> ask(const std::string& line, const std::string& answer, TimeNs deadline) {
    CIUIC_RETURN_IF_ERROR(pipe_.send(line + "\n", deadline));
    Result<std::string> got = pipe_.read_line(deadline);
    if (!got.ok()) return got;
    if (field(*got, "cmd") != answer) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("PMI: \"{}\" where {} was expected", printable(*got, 128), answer));
    }
    return got;
  }

  PmiPipe pipe_;
  std::string kvs_;
  size_t value_bytes_ = 0;
};

}  // namespace

Result<std::unique_ptr<LauncherSpace>> begin_pmi1(PmiPipe pipe, TimeNs deadline) {
  auto space = std::make_unique<Pmi1Space>(std::move(pipe));
  CIUIC_RETURN_IF_ERROR(space->begin(deadline));
  return std::unique_ptr<LauncherSpace>(std::move(space));
}

}  // namespace ciuic::bootstrap
