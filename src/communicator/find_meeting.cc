// SPDX-License-Identifier: Apache-2.0
// find_meeting.cc: which rank this is, and the store in which it meets the others.

#include <fmt/format.h>

#include <charconv>

#include "base/log.h"
#include "bootstrap/environment.h"
#include "bootstrap/pmi_store.h"
#include "communicator/join.h"

namespace ciuic {

static Status check_rank(int rank, int size) {
  if (size >= 1 && rank >= 0 && rank < size) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("rank {} is outside a group of {} (0 to {})", rank, size, size - 1)};
}

static Result<std::shared_ptr<Store>> find_store(const CommunicatorOptions& options,
                                                 const Config& config, TimeNs deadline) {
  if (options.store != nullptr) return options.store;
  if (!config.store.empty()) {
    Result<std::unique_ptr<Store>> store = open_store(config.store, left_ms(deadline, now_ns()));
    if (!store.ok()) return store.status();
    return std::shared_ptr<Store>(std::move(*store));
  }
  if (const auto text = environment_variable("PMI_FD")) {
    int fd = -1;
    std::from_chars(text->data(), text->data() + text->size(), fd);
    auto session = bootstrap::process_pmi_session(fd, deadline);
    if (!session.ok()) return session.status();
    return std::shared_ptr<Store>(std::make_shared<bootstrap::PmiStore>(std::move(*session)));
  }
  return Status(
      StatusCode::kInvalidArgument,
      "the ranks have no place to meet: no store was given, CIUIC_STORE is not set (file:///path "
      "or "
      "tcp://host:port) and there is no PMI_FD (mpiexec of MPICH sets it). Start the program with "
      "`ciuic run`, or give a store");
}

Result<Meeting> find_meeting(const CommunicatorOptions& options, const Config& config,
                             TimeNs deadline) {
  Meeting meeting{.rank = options.rank, .size = options.size, .store = nullptr};
  if (options.size < 0) {
    Result<bootstrap::Launched> launched = bootstrap::read_launcher(environment_variable);
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
