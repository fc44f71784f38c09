// SPDX-License-Identifier: Apache-2.0
// create.cc: a communicator comes into being: settings, join, driver, backend, description.

#include "communicator/create.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "backend/mpi/mpi_backend.h"
#include "backend/native/native_backend.h"
#include "base/config.h"
#include "base/fork.h"
#include "base/json_text.h"
#include "ciuic/version.h"
#include "communicator/join.h"
#include "communicator/process_driver.h"
#include "communicator/process_recorder.h"
#include "communicator/state.h"
#include "kernels/reduce.h"
#include "topology/host.h"

namespace ciuic {

// The largest chunk that the tuner gives out, for the bound on what arrives early.
static constexpr size_t kLargestChunk = 256 * 1024;
static constexpr size_t kMostWindow = 8;

// Chunks a (operation, link) that may be under way, so that all of them fit into buffer_size.
static int window_for(size_t buffer_size, int size) {
  const size_t streams = engine::kMaxActive * static_cast<size_t>(std::max(1, size - 1));
  return static_cast<int>(
      std::clamp<size_t>(buffer_size / (streams * kLargestChunk), 1, kMostWindow));
}

static Result<CommunicatorOptions> effective(const CommunicatorOptions& asked,
                                             const Config& config) {
  CommunicatorOptions options = asked;
  if (options.timeout_ms < 0) options.timeout_ms = config.timeout_ms;
  if (options.buffer_size == 0) options.buffer_size = config.buffer_size;
  if (options.backend == "auto") options.backend = config.backend;
  if (options.backend == "auto") options.backend = "native";
  if (options.backend != "native" && options.backend != "mpi") {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("backend \"{}\" is unknown; there are \"auto\", \"native\" and "
                              "\"mpi\"",
                              options.backend));
  }
  const bool says_size_alone = options.backend == "mpi" && options.rank < 0;  // it is compared
  if ((options.rank < 0) != (options.size < 0) && !says_size_alone) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("rank is {} and size {}: give both, or neither where a launcher says "
                              "them",
                              options.rank, options.size));
  }
  return options;
}

static std::string list_of(const std::set<std::string>& names) {
  std::string text = "[";
  for (const std::string& name : names) {
    if (text.size() > 1) text += ",";
    text += json_quoted(name);
  }
  return text + "]";
}

static std::string description_of(const Joined& joined, const CommunicatorOptions& options,
                                  const Config& config, int rank) {
  std::set<std::string> transports;
  for (const auto& link : joined.links) {
    if (link != nullptr) transports.insert(link->transport());
  }
  std::string reasons = "{";
  for (const auto& [peer, reason] : joined.reasons) {
    if (reasons.size() > 1) reasons += ",";
    reasons += fmt::format("\"{}\":{}", peer, json_quoted(reason));
  }
  reasons += "}";
  return fmt::format(
      "{{\"backend\":{},\"version\":{},\"group\":{},\"epoch\":{},\"rank\":{},\"ranks\":{},"
      "\"hosts\":{},\"layout\":{},\"transports\":{},\"interface\":{},\"store\":{},"
      "\"store_is_private\":{},\"tls\":{},\"not_shm\":{},\"timeout_ms\":{},\"buffer_size\":{},"
      "\"simd\":{},"
      "\"strangers\":{},\"join_ms\":{:.1f},\"settings\":{}}}",
      json_quoted(options.backend), json_quoted(version()), json_quoted(options.group_name),
      joined.epoch, rank, joined.layout.size(), joined.layout.hosts(),
      json_quoted(joined.layout.text()), list_of(transports), json_quoted(joined.interface_name),
      json_quoted(joined.store_name), joined.store_is_private, joined.tls, reasons,
      options.timeout_ms, options.buffer_size, json_quoted(kernels::simd_target()),
      joined.strangers, static_cast<double>(joined.took_ns) / 1e6, config.to_json());
}

static std::unique_ptr<control::ControlGroup> control_of(Joined* joined,
                                                         const CommunicatorOptions& options) {
  control::Settings settings = control::Settings::for_timeout(options.timeout_ms);
  settings.rank = joined->rank;
  for (const bootstrap::Card& card : joined->group_at_join->roll.cards) {
    settings.names.push_back(card.who());
  }
  return std::make_unique<control::ControlGroup>(std::move(settings), std::move(joined->channels));
}

// Once all have joined: MPI as the backend, with the native one beside it.
static Status take_mpi(const MpiJoin& mpi, const CommunicatorOptions& options, const Config& config,
                       const plan::Layout& layout, const tuner::TuningTable& table, bool crowded,
                       Communicator::State* state) {
  Result<mpi::Handle> communicator = mpi.make();
  if (!communicator.ok()) return communicator.status();
  backend::MpiBackendOptions made{
      .process = mpi.process,
      .communicator = *communicator,
      .native = std::unique_ptr<backend::NativeBackend>(
          static_cast<backend::NativeBackend*>(state->backend.release())),
      .chooser = collective::Chooser(layout, state->rank, table),
      .on_cause = {},
      .oversubscribed = crowded,
      .check = config.check && state->size > 1,
      .timeout_ms = options.timeout_ms,
      .buffer_size = options.buffer_size};
  if (state->control != nullptr) {
    made.on_cause = [control = state->control.get()](const engine::Cause& cause) {
      control->report(cause);
    };
  }
  state->backend = std::make_unique<backend::MpiBackend>(std::move(made));
  state->description.insert(state->description.size() - 1, ",\"mpi\":" + mpi.description());
  return {};
}

Result<std::unique_ptr<Communicator::State>> make_state(const CommunicatorOptions& options,
                                                        const Config& config,
                                                        int64_t join_timeout_ms,
                                                        const MpiJoin& mpi) {
  Result<topology::Host> host = topology::this_host(config.host_id);
  if (!host.ok()) return host.status();
  auto driver = process_driver({.buffer_size = options.buffer_size, .spin_us = config.spin_us});
  if (!driver.ok()) return driver.status();
  (void)process_recorder(config, *host);  // so that one that hangs in the join is seen, too
  CommunicatorOptions of_join = options;
  of_join.timeout_ms = join_timeout_ms;
  Result<Joined> joined = join(of_join, config, *host, (*driver)->poller(), process_shared_pool());
  if (!joined.ok()) return joined.status();

  auto state = std::make_unique<Communicator::State>();
  state->rank = joined->rank;
  state->size = joined->layout.size();
  state->made_in = fork_generation();
  state->shared_pool = process_shared_pool();
  state->description = description_of(*joined, options, config, joined->rank);
  engine::GroupHooks hooks;
  hooks.local_ranks =
      static_cast<int>(joined->layout.ranks_on(joined->layout.host_of(joined->rank)).size());
  hooks.local_cores = joined->local_cores;
  const bool crowded = hooks.local_ranks > hooks.local_cores;
  for (const auto& link : joined->links) {
    hooks.has_sockets |= link != nullptr && std::string_view(link->transport()) != "shm";
  }
  if (joined->segment != nullptr) {
    state->segment_bytes = joined->segment->bytes();
    hooks.set_sleeping = [segment = joined->segment](bool sleeping) {
      segment->set_sleeping(sleeping);
    };
  }
  if (state->size > 1) {
    state->control = control_of(&*joined, options);
    hooks.on_cause = [control = state->control.get()](const engine::Cause& cause) {
      control->report(cause);
    };
  }
  engine::GroupConfig group{.id = joined->group,
                            .epoch = joined->epoch,
                            .rank = joined->rank,
                            .links = std::move(joined->links),
                            .window = window_for(options.buffer_size, state->size),
                            .is_arbitrated = state->size > 1,
                            .trace = record_group(config, *host,
                                                  {.name = options.group_name,
                                                   .job = trace::job_number(joined->job),
                                                   .id = joined->group,
                                                   .epoch = joined->epoch,
                                                   .rank = joined->rank,
                                                   .size = state->size})};
  state->backend = std::make_unique<backend::NativeBackend>(backend::NativeOptions{
      .driver = *driver,
      .group = std::move(group),
      .hooks = std::move(hooks),
      .chooser = collective::Chooser(joined->layout, joined->rank, joined->table),
      .timeout_ms = options.timeout_ms,
      .buffer_size = options.buffer_size});
  if (mpi.process != nullptr) {
    CIUIC_RETURN_IF_ERROR(
        take_mpi(mpi, options, config, joined->layout, joined->table, crowded, state.get()));
  }
  state->options = options;
  state->group_at_join = std::move(joined->group_at_join);
  if (state->control != nullptr) CIUIC_RETURN_IF_ERROR(state->control->start(state->backend.get()));
  state->shared_pool->add_user();
  return state;
}

Result<std::unique_ptr<Communicator>> Communicator::create(const CommunicatorOptions& asked) {
  Result<Config> config = Config::from_environment();
  if (!config.ok()) return config.status();
  CIUIC_RETURN_IF_ERROR(apply_log_settings(*config));
  Result<CommunicatorOptions> options = effective(asked, *config);
  if (!options.ok()) return options.status();
  Result<MpiJoin> mpi = MpiJoin();
  int64_t join_timeout_ms = options->timeout_ms;
  if (options->backend == "mpi") {
    const TimeNs deadline = deadline_after(now_ns(), join_timeout_ms);
    mpi = begin_mpi(&*options, *config, deadline);
    if (!mpi.ok()) return mpi.status();
    join_timeout_ms = std::max<int64_t>(1, left_ms(deadline, now_ns()));
  }
  Result<std::unique_ptr<State>> state = make_state(*options, *config, join_timeout_ms, *mpi);
  if (!state.ok()) return state.status();
  return std::unique_ptr<Communicator>(new Communicator(std::move(*state)));
}

Result<std::unique_ptr<Communicator>> Communicator::shrink(int64_t timeout_ms) {
  if (state_->made_in != fork_generation()) {
    return Status(StatusCode::kClosed,
                  "shrink: this process was forked from the one that joined the group");
  }
  if (state_->closed.load(std::memory_order_acquire)) {
    return Status(StatusCode::kClosed,
                  "shrink: the communicator is closed; shrink() before close()");
  }
  if (state_->options.backend == "mpi") {
    return Status(StatusCode::kUnsupported,
                  "shrink: what is left of an MPI job that has lost a process cannot go on in MPI; "
                  "start it anew, or take backend=\"native\"");
  }
  Result<Config> config = Config::from_environment();
  if (!config.ok()) return config.status();
  CommunicatorOptions options = state_->options;
  const TimeNs deadline =
      deadline_after(now_ns(), timeout_ms >= 0 ? timeout_ms : options.timeout_ms);
  options.rank = 0;
  options.size = 1;
  if (state_->size > 1) {
    // Where nothing is wrong yet, the group ends now: its ranks all go to the new one.
    state_->has_shrunk.store(true, std::memory_order_release);
    const Status left(StatusCode::kAborted, fmt::format("rank {} called shrink()", state_->rank));
    state_->backend->report({.status = left});
    state_->backend->end(left);
    auto survivors = muster_survivors(*state_->group_at_join, state_->control->gone(), deadline);
    if (!survivors.ok()) return survivors.status();
    options.rank = survivors->rank;
    options.size = survivors->size;
    options.store = survivors->store;
  }
  const int64_t left_for_join = std::max<int64_t>(1, left_ms(deadline, now_ns()));
  Result<std::unique_ptr<State>> state = make_state(options, *config, left_for_join);
  if (!state.ok()) return state.status();
  (*state)->options.store = nullptr;  // of no further use
  return std::unique_ptr<Communicator>(new Communicator(std::move(*state)));
}

}  // namespace ciuic
