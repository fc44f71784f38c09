// SPDX-License-Identifier: Apache-2.0
// create.cc: a communicator comes into being: settings, join, driver, backend, description.

#include "communicator/create.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "backend/nccl/nccl_backend.h"
#include "base/config.h"
#include "base/fork.h"
#include "base/json_text.h"
#include "ciuic/version.h"
#include "communicator/join.h"
#include "communicator/make_backend.h"
#include "communicator/process_driver.h"
#include "communicator/process_recorder.h"
#include "communicator/state.h"
#include "drivers/cuda/cuda.h"
#include "drivers/nccl/nccl.h"
#include "kernels/reduce.h"
#include "topology/host.h"

namespace ciuic {

static Result<CommunicatorOptions> effective(const CommunicatorOptions& asked,
                                             const Config& config) {
  CommunicatorOptions options = asked;
  if (options.timeout_ms < 0) options.timeout_ms = config.timeout_ms;
  if (options.buffer_size == 0) options.buffer_size = config.buffer_size;
  if (options.backend == "auto") options.backend = config.backend;
  if (options.backend != "auto" && options.backend != "native" && options.backend != "nccl" &&
      options.backend != "mpi") {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("backend \"{}\" is unknown; there are \"auto\", \"native\", "
                              "\"nccl\" and \"mpi\"",
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
      "{{\"backend\":{},\"backend_why\":{},\"version\":{},\"group\":{},\"epoch\":{},\"rank\":{},"
      "\"ranks\":{},"
      "\"hosts\":{},\"layout\":{},\"transports\":{},\"interface\":{},\"store\":{},"
      "\"store_is_private\":{},\"tls\":{},\"not_shm\":{},\"timeout_ms\":{},\"buffer_size\":{},"
      "\"simd\":{},"
      "\"strangers\":{},\"join_ms\":{:.1f},\"settings\":{}}}",
      json_quoted(joined.backend.name), json_quoted(joined.backend.why), json_quoted(version()),
      json_quoted(options.group_name), joined.epoch, rank, joined.layout.size(),
      joined.layout.hosts(), json_quoted(joined.layout.text()), list_of(transports),
      json_quoted(joined.interface_name), json_quoted(joined.store_name), joined.store_is_private,
      joined.tls, reasons, options.timeout_ms, options.buffer_size,
      json_quoted(kernels::simd_target()), joined.strangers,
      static_cast<double>(joined.took_ns) / 1e6, config.to_json());
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

Result<std::unique_ptr<Communicator::State>> make_state(const CommunicatorOptions& options,
                                                        const Config& config,
                                                        int64_t join_timeout_ms, const MpiJoin& mpi,
                                                        size_t nccl_buffer_size) {
  Result<topology::Host> host = topology::this_host(config.host_id);
  if (!host.ok()) return host.status();
  auto driver = process_driver({.buffer_size = options.buffer_size, .spin_us = config.spin_us});
  if (!driver.ok()) return driver.status();
  (void)process_recorder(config, *host);  // so that one that hangs in the join is seen, too
  int device = -1;
  const bootstrap::GpuFacts gpu = look_for_gpu(options, config, nccl_buffer_size, &device);
  CommunicatorOptions of_join = options;
  of_join.timeout_ms = join_timeout_ms;
  Result<Joined> joined =
      join(of_join, config, *host, gpu, (*driver)->poller(), process_shared_pool());
  if (!joined.ok()) return joined.status();

  auto state = std::make_unique<Communicator::State>();
  state->rank = joined->rank;
  state->size = joined->layout.size();
  state->made_in = fork_generation();
  state->shared_pool = process_shared_pool();
  state->description = description_of(*joined, options, config, joined->rank);
  if (joined->segment != nullptr) state->segment_bytes = joined->segment->bytes();
  if (state->size > 1) state->control = control_of(&*joined, options);
  state->group_at_join = std::move(joined->group_at_join);
  CIUIC_RETURN_IF_ERROR(make_backend({.options = options,
                                      .config = config,
                                      .host = *host,
                                      .driver = *driver,
                                      .mpi = mpi,
                                      .device = device},
                                     std::move(*joined), state.get()));
  state->options = options;
  if (state->control != nullptr) CIUIC_RETURN_IF_ERROR(state->control->start(state->backend.get()));
  state->shared_pool->add_user();
  if (state->nccl != nullptr) {  // what is wrong with it is heard of now
    CIUIC_RETURN_IF_ERROR(state->nccl->ensure_comm(device, join_timeout_ms));
  }
  return state;
}

// What the caller has found comes after what is set, and what is loaded. To "auto", CUDA that
// nobody has loaded is none.
static void take_libraries(const CommunicatorOptions& options, Config* config) {
  const bool may_load = options.backend == "nccl" && !cuda::is_loaded();
  if (config->cuda_library.empty() && may_load) config->cuda_library = options.cuda_library;
  if (config->nccl_library.empty() && !nccl::is_loaded()) {
    config->nccl_library = options.nccl_library;
  }
}

Result<std::unique_ptr<Communicator>> Communicator::create(const CommunicatorOptions& asked) {
  Result<Config> config = Config::from_environment();
  if (!config.ok()) return config.status();
  CIUIC_RETURN_IF_ERROR(apply_log_settings(*config));
  Result<CommunicatorOptions> options = effective(asked, *config);
  if (!options.ok()) return options.status();
  take_libraries(*options, &*config);
  Result<MpiJoin> mpi = MpiJoin();
  int64_t join_timeout_ms = options->timeout_ms;
  if (options->backend == "mpi") {
    const TimeNs deadline = deadline_after(now_ns(), join_timeout_ms);
    mpi = begin_mpi(&*options, *config, deadline);
    if (!mpi.ok()) return mpi.status();
    join_timeout_ms = std::max<int64_t>(1, left_ms(deadline, now_ns()));
  }
  Result<std::unique_ptr<State>> state =
      make_state(*options, *config, join_timeout_ms, *mpi, asked.buffer_size);
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
