// SPDX-License-Identifier: Apache-2.0
// sim_network.h: simulated processes' connections, their clock, and who steps when.
//
// Nothing here is parallel: the simulation takes the next wake, moves the clock there and lets that
// process step. All that is random comes from one seed, so that a run replays exactly.
#pragma once

#include <cstdint>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "sim/channel.h"
#include "sim/sim_link.h"
#include "sim/slot_channel.h"
#include "sim/stream_channel.h"

namespace ciuic::sim {

// How the connections of a run are drawn. The defaults are lively.
struct NetworkOptions {
  TimeNs latency_max = 20'000;
  int stall_percent = 5;    // channels that stand still for a while
  int refuse_percent = 10;  // channels that now and then take nothing
  int late_percent = 10;    // connections that are made late
  bool completion_delays = true;
  int stream_percent = 50;  // channels between ranks of one host that are streams all the same

  bool prints = false;  // every message, to the standard output

  // Planted in the channel from process mutant_from to process mutant_to.
  Mutant mutant = Mutant::kNone;
  int mutant_from = -1;
  int mutant_to = -1;
  int mutant_after = 0;

  bool is_blind = false;  // planted: no link sees that its peer is gone
};

class SimNetwork final : public World {
 public:
  // `actors`: who may be woken; processes are the first of them.
  SimNetwork(uint64_t seed, int actors, NetworkOptions options);
  ~SimNetwork() override;

  // World
  TimeNs now() const override { return now_; }
  void wake(int process, TimeNs at) override;
  void complain(const std::string& what) override;
  void sending(int from, int to, const wire::Header& header) override;

  // Connects the processes as the ranks of a group. host_of[rank] says who shares memory.
  void connect(uint32_t group, uint32_t epoch, const std::vector<int>& processes,
               const std::vector<int>& host_of);

  // The links of one rank of the group connected last; to be taken once.
  std::vector<std::unique_ptr<transport::Link>> take_links(int rank);

  // What becomes of every connection between two processes; of one with all others, where `other`
  // is negative. Only streams can be dropped: memory that is shared stays shared.
  void cut(int process, int other);
  void drop(int process, int other);
  void die(int process, bool loses);

  // The process's messages in a group.
  void set_lie(uint32_t group, int process, Lie* lie);

  // Moves the clock to the next wake. False: nothing will ever happen again.
  bool next(int* process);

  // The process steps now; what is due for it until now is thereby done.
  void stepping(int process);

  const std::vector<std::string>& complaints() const { return complaints_; }

  // Payloads that were handed out and never released, while their links were open.
  size_t unreleased() const;

  uint64_t digest() const { return digest_; }  // of the order of events: equal in a replay

 private:
  struct Wake {
    TimeNs at = 0;
    uint64_t number = 0;
    int process = 0;
    bool operator>(const Wake& other) const {
      return at != other.at ? at > other.at : number > other.number;
    }
  };
  struct Connection {
    uint32_t group = 0;
    int from = 0;
    int to = 0;
    bool stream = false;
    std::shared_ptr<Channel> channel;
  };
  struct LastStep {
    TimeNs at = -1;
    uint64_t number = 0;
  };

  ChannelOptions draw(int from, int to, bool stream);
  std::shared_ptr<Channel> make(uint32_t group, int from, int to, bool stream,
                                const ChannelOptions& options, std::shared_ptr<SlotPool> pool);

  const NetworkOptions options_;
  Random random_;
  TimeNs now_ = 0;
  uint64_t wakes_ = 0;
  uint64_t digest_ = 0;
  std::priority_queue<Wake, std::vector<Wake>, std::greater<>> queue_;
  std::vector<LastStep> last_step_;
  std::vector<Connection> connections_;
  std::vector<std::vector<std::unique_ptr<transport::Link>>> links_;  // of the last group
  std::vector<std::string> complaints_;
};

}  // namespace ciuic::sim
