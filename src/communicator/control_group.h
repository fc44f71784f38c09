// SPDX-License-Identifier: Apache-2.0
// control_group.h: a group's control plane in a real process: its node, the join's connections, and
// the process's one control thread, which drives those of all groups.
//
// The thread sleeps in poll(2) until a line has something, a heartbeat is due or the data path has
// halted. It takes no lock that a caller holds while it computes or waits (the engine's is held for
// one step at most), and no GIL. It ends with the last group. In a forked child there is none.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "bootstrap/channel.h"
#include "ciuic/status.h"
#include "communicator/control_node.h"
#include "communicator/control_settings.h"
#include "engine/data_path.h"

namespace ciuic::control {

class Thread;

class ControlGroup {
 public:
  // `channels`: rank 0 has one for each rank (that for itself empty), the others one, to rank 0.
  ControlGroup(Settings settings, std::vector<std::unique_ptr<bootstrap::Channel>> channels);
  ~ControlGroup();
  ControlGroup(const ControlGroup&) = delete;
  ControlGroup& operator=(const ControlGroup&) = delete;

  // From here on the group is driven. `data_path` lives until leave() has returned.
  Status start(engine::DataPath* data_path);

  // The data path has halted. Any thread, whatever locks it holds; never blocks.
  void report(const engine::Cause& cause);

  // Closes in good order; the hub on rank 0 goes on for the others. Not under a lock that the data
  // path takes. Idempotent.
  void leave();

  // By rank: who is known to be gone or to have left.
  std::vector<bool> gone() const;

 private:
  struct Driven;
  std::shared_ptr<Driven> driven_;
  friend class Thread;
};

}  // namespace ciuic::control
