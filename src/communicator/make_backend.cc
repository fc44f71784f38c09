// SPDX-License-Identifier: Apache-2.0
// make_backend.cc: links become a native backend, and that what was chosen.

#include "communicator/make_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "backend/mpi/mpi_backend.h"
#include "backend/native/native_backend.h"
#include "backend/nccl/nccl_backend.h"
#include "backend/nccl/nccl_settings.h"
#include "backend/staged/staged_backend.h"
#include "base/json_text.h"
#include "communicator/process_recorder.h"

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

// Causes to end the group go to the control plane. Empty for one rank.
static std::function<void(const engine::Cause&)> reporting_to(control::ControlGroup* control) {
  if (control == nullptr) return {};
  return [control](const engine::Cause& cause) { control->report(cause); };
}

static engine::GroupHooks hooks_of(const Joined& joined, control::ControlGroup* control) {
  engine::GroupHooks hooks;
  hooks.local_ranks =
      static_cast<int>(joined.layout.ranks_on(joined.layout.host_of(joined.rank)).size());
  hooks.local_cores = joined.local_cores;
  for (const auto& link : joined.links) {
    hooks.has_sockets |= link != nullptr && std::string_view(link->transport()) != "shm";
  }
  if (joined.segment != nullptr) {
    hooks.set_sleeping = [segment = joined.segment](bool sleeping) {
      segment->set_sleeping(sleeping);
    };
  }
  hooks.on_cause = reporting_to(control);
  return hooks;
}

static trace::GroupRecorder make_recorder(const BackendParts& parts, const Joined& joined) {
  return record_group(parts.config, parts.host,
                      {.name = parts.options.group_name,
                       .job = trace::job_number(joined.job),
                       .id = joined.group,
                       .epoch = joined.epoch,
                       .rank = joined.rank,
                       .size = joined.layout.size()});
}

static std::unique_ptr<backend::NativeBackend> make_native(const BackendParts& parts,
                                                           engine::GroupHooks hooks,
                                                           trace::GroupRecorder recorder,
                                                           Joined* joined) {
  const int size = joined->layout.size();
  engine::GroupConfig group{.id = joined->group,
                            .epoch = joined->epoch,
                            .rank = joined->rank,
                            .links = std::move(joined->links),
                            .window = window_for(parts.options.buffer_size, size),
                            .is_arbitrated = size > 1,
                            .trace = std::move(recorder)};
  return std::make_unique<backend::NativeBackend>(backend::NativeOptions{
      .driver = parts.driver,
      .group = std::move(group),
      .hooks = std::move(hooks),
      .chooser = collective::Chooser(joined->layout, joined->rank, joined->table),
      .timeout_ms = parts.options.timeout_ms,
      .buffer_size = parts.options.buffer_size});
}

// MPI, with the native one beside it, whose few operations are not recorded: their numbers are its.
static Result<std::unique_ptr<backend::MpiBackend>> make_mpi(
    const BackendParts& parts, const Joined& joined, bool crowded,
    std::unique_ptr<backend::NativeBackend> native, control::ControlGroup* control) {
  Result<mpi::Handle> communicator = parts.mpi.make();
  if (!communicator.ok()) return communicator.status();
  return std::make_unique<backend::MpiBackend>(backend::MpiBackendOptions{
      .process = parts.mpi.process,
      .communicator = *communicator,
      .native = std::move(native),
      .chooser = collective::Chooser(joined.layout, joined.rank, joined.table),
      .on_cause = reporting_to(control),
      .oversubscribed = crowded,
      .check = parts.config.check && joined.layout.size() > 1,
      .trace = make_recorder(parts, joined),
      .timeout_ms = parts.options.timeout_ms,
      .buffer_size = parts.options.buffer_size});
}

// NCCL, likewise.
static Result<std::unique_ptr<backend::NcclBackend>> make_nccl(
    const BackendParts& parts, const Joined& joined, std::unique_ptr<backend::NativeBackend> native,
    trace::GroupRecorder recorder, control::ControlGroup* control) {
  auto process = nccl_process(parts.config);
  if (!process.ok()) return process.status();
  return std::make_unique<backend::NcclBackend>(backend::NcclBackendOptions{
      .process = std::move(*process),
      .native = std::move(native),
      .cuda_library = parts.config.cuda_library,
      .chooser = collective::Chooser(joined.layout, joined.rank, joined.table),
      .on_cause = reporting_to(control),
      .host_name = parts.host.name,
      .host_id = parts.host.machine_id,
      .check = parts.config.check && joined.layout.size() > 1,
      .trace = std::move(recorder),
      .others_go_native = joined.backend.takes_others,
      .timeout_ms = parts.options.timeout_ms,
      .buffer_size = parts.options.buffer_size,
      .device = parts.device,
      .traffic_class = backend::settle_nccl_settings(0).traffic_class()});
}

static std::string description_of(const backend::NcclProcess& process) {
  return fmt::format("{{\"version\":{},\"path\":{},\"cuda\":{},{}}}",
                     json_quoted(nccl::version_text(process.nccl().version)),
                     json_quoted(process.nccl().path), json_quoted(process.cuda().path),
                     backend::settle_nccl_settings(0).to_json());
}

static void describe(const char* name, const std::string& json, Communicator::State* state) {
  state->description.insert(state->description.size() - 1,
                            std::string(",\"") + name + "\":" + json);
}

Status make_backend(const BackendParts& parts, Joined joined, Communicator::State* state) {
  control::ControlGroup* control = state->control.get();
  engine::GroupHooks hooks = hooks_of(joined, control);
  const bool crowded = hooks.local_ranks > hooks.local_cores;
  trace::GroupRecorder recorder;
  if (joined.backend.name != "mpi") recorder = make_recorder(parts, joined);
  std::unique_ptr<backend::NativeBackend> native =
      make_native(parts, std::move(hooks), recorder, &joined);
  if (joined.backend.name == "nccl") {
    auto made = make_nccl(parts, joined, std::move(native), std::move(recorder), control);
    if (!made.ok()) return made.status();
    state->nccl = made->get();
    describe("nccl", description_of(*state->nccl->process()), state);
    state->backend = std::move(*made);
    return {};
  }
  std::unique_ptr<backend::HostBackend> host;
  if (joined.backend.name == "mpi") {
    auto made = make_mpi(parts, joined, crowded, std::move(native), control);
    if (!made.ok()) return made.status();
    state->mpi = made->get();
    host = std::move(*made);
    describe("mpi", parts.mpi.description(), state);
  } else {
    host = std::move(native);
  }
  state->backend = std::make_unique<backend::StagedBackend>(
      backend::StagedOptions{.host = std::move(host),
                             .cuda_library = parts.config.cuda_library,
                             .rank = joined.rank,
                             .size = joined.layout.size(),
                             .buffer_size = parts.options.buffer_size});
  return {};
}

}  // namespace ciuic
