// SPDX-License-Identifier: Apache-2.0
// cost.cc: runs plans on a clock of latencies and bandwidths.

#include "tuner/cost.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

#include "plan/matching.h"

namespace ciuic::tuner {

using plan::Plan;
using plan::Step;
using plan::StepKind;

int64_t bytes_of(const Plan& plan, plan::BlockRange range, const Load& load) {
  return plan.elements(range, load.count).size * static_cast<int64_t>(size_of(load.dtype));
}

int64_t sent_bytes(const Plan& plan, const Load& load) {
  int64_t bytes = 0;
  for (const Step& step : plan.steps) {
    if (step.kind != StepKind::kSend) continue;
    bytes += bytes_of(plan, step.source, load) * static_cast<int64_t>(step.peers.size());
  }
  return bytes;
}

namespace {

// Steps times chunks: what a prediction may take, some milliseconds of work.
constexpr int64_t kMostNodes = 200'000;
constexpr int64_t kFewestChunks = 16;
constexpr int64_t kMostChunks = 128;

int64_t most_chunks(const std::vector<Plan>& plans) {
  int64_t steps = 1;
  for (const Plan& plan : plans) steps += static_cast<int64_t>(plan.steps.size());
  return std::clamp(kMostNodes / steps, kFewestChunks, kMostChunks);
}

// One chunk of one step. Its time begins when all that it waits for is over, and what it needs is
// free.
struct Node {
  int rank = 0;
  int step = 0;
  int waits = 0;
  double ready_ns = 0;
  double done_ns = 0;
  std::vector<std::pair<int, bool>> next;  // node, and whether it is reached by a message
};

class Clock {
 public:
  Clock(const std::vector<Plan>& plans, const plan::Layout& layout, const Load& load,
        const TuningTable& table)
      : plans_(plans),
        layout_(layout),
        load_(load),
        table_(table),
        most_chunks_(most_chunks(plans)),
        processor_free_ns_(plans.size(), 0),
        leaving_free_ns_(layout.hosts(), 0),
        coming_free_ns_(layout.hosts(), 0) {
    add_nodes();
    add_orders();
  }

  double run(const std::vector<plan::Message>& messages) {
    for (const plan::Message& message : messages) {
      const int from = first_[message.sender][message.send_step];
      const int to = first_[message.receiver][message.receive_step];
      const int chunks = std::min(chunks_[message.sender][message.send_step],
                                  chunks_[message.receiver][message.receive_step]);
      for (int chunk = 0; chunk < chunks; ++chunk) edge(from + chunk, to + chunk, true);
    }
    for (size_t node = 0; node < nodes_.size(); ++node) {
      if (nodes_[node].waits == 0) events_.push({0, static_cast<int>(node), -1});
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.from >= 0) {
        reach(event.node, arrival(nodes_[event.from], nodes_[event.node], event.at_ns));
      } else {
        run_node(event.node);
      }
    }
    return last_ns_ / 1000;
  }

 private:
  // In the order of time, so that ports serve who comes first. from < 0: all that a node waits for
  // is over; else a chunk of node `from` begins to leave for it.
  struct Event {
    double at_ns = 0;
    int node = 0;
    int from = -1;
    bool operator>(const Event& other) const {
      return std::tie(at_ns, node, from) > std::tie(other.at_ns, other.node, other.from);
    }
  };

  void reach(int number, double at_ns) {
    Node& node = nodes_[number];
    node.ready_ns = std::max(node.ready_ns, at_ns);
    if (--node.waits == 0) events_.push({node.ready_ns, number, -1});
  }

  void add_nodes() {
    first_.resize(plans_.size());
    chunks_.resize(plans_.size());
    for (size_t rank = 0; rank < plans_.size(); ++rank) {
      for (size_t step = 0; step < plans_[rank].steps.size(); ++step) {
        const int64_t chunk = static_cast<int64_t>(std::max<size_t>(load_.chunk_bytes, 1));
        const int64_t chunks = (step_bytes(plans_[rank], step) + chunk - 1) / chunk;
        first_[rank].push_back(static_cast<int>(nodes_.size()));
        chunks_[rank].push_back(static_cast<int>(std::clamp<int64_t>(chunks, 1, most_chunks_)));
        for (int number = 0; number < chunks_[rank].back(); ++number) {
          Node& node = nodes_.emplace_back();
          node.rank = static_cast<int>(rank);
          node.step = static_cast<int>(step);
        }
      }
    }
  }

  // Chunks of a step one after another, steps after those that they come after, and messages of a
  // stream one after another.
  void add_orders() {
    for (size_t rank = 0; rank < plans_.size(); ++rank) {
      std::vector<int> last_send(plans_[rank].streams.size(), -1);
      for (size_t step = 0; step < plans_[rank].steps.size(); ++step) {
        const Step& of_plan = plans_[rank].steps[step];
        const int first = first_[rank][step];
        for (int chunk = 1; chunk < chunks_[rank][step]; ++chunk) {
          edge(first + chunk - 1, first + chunk, false);
        }
        for (const plan::Dependency& dependency : of_plan.after) {
          const int earlier = first_[rank][dependency.step];
          const int most = chunks_[rank][dependency.step] - 1;
          for (int chunk = 0; chunk < chunks_[rank][step]; ++chunk) {
            edge(earlier + (dependency.whole ? most : std::min(chunk, most)), first + chunk, false);
          }
        }
        for (size_t peer = 0; of_plan.kind == StepKind::kSend && peer < of_plan.peers.size();
             ++peer) {
          int& last = last_send[of_plan.places[peer].stream];
          if (last >= 0) edge(first_[rank][last] + chunks_[rank][last] - 1, first, false);
          last = static_cast<int>(step);
        }
      }
    }
  }

  void edge(int from, int to, bool by_message) {
    nodes_[from].next.emplace_back(to, by_message);
    ++nodes_[to].waits;
  }

  int64_t step_bytes(const Plan& plan, size_t step) const {
    const Step& of_plan = plan.steps[step];
    return bytes_of(plan, of_plan.kind == StepKind::kReceive ? of_plan.target : of_plan.source,
                    load_);
  }

  double chunk_size(const Node& node) const {
    return static_cast<double>(step_bytes(plans_[node.rank], node.step)) /
           chunks_[node.rank][node.step];
  }

  // When a chunk that began to leave at `begin_ns` can be used: when it has left, and has come
  // through the other host's port, which others use as well.
  double arrival(const Node& from, const Node& to, double begin_ns) {
    if (layout_.same_host(from.rank, to.rank)) {
      return from.done_ns + static_cast<double>(table_.shm_latency_ns);
    }
    double& free_ns = coming_free_ns_[layout_.host_of(to.rank)];
    free_ns = std::max(free_ns, begin_ns) + time_ns(chunk_size(from), table_.tcp_mb_per_s);
    return std::max(free_ns, from.done_ns) + static_cast<double>(table_.tcp_latency_ns);
  }

  static double time_ns(double bytes, int64_t mb_per_s) {
    return bytes * 1000 / static_cast<double>(mb_per_s);
  }

  void run_node(int number) {
    Node& node = nodes_[number];
    const Step& step = plans_[node.rank].steps[node.step];
    const double bytes = chunk_size(node);
    double work_ns = static_cast<double>(table_.step_ns);
    double crossing_ns = 0;
    const auto is_local = [&](int peer) { return layout_.same_host(node.rank, peer); };
    const auto local = std::count_if(step.peers.begin(), step.peers.end(), is_local);
    const auto remote = static_cast<double>(static_cast<int64_t>(step.peers.size()) - local);
    work_ns += remote * static_cast<double>(table_.tcp_message_ns);
    if (step.kind == StepKind::kSend) {
      crossing_ns = remote * time_ns(bytes, table_.tcp_mb_per_s);
      if (local > 0) work_ns += time_ns(bytes, table_.shm_mb_per_s);
    } else if (step.kind == StepKind::kReduce) {
      const double operands = static_cast<double>(step.peers.size()) + 1;
      work_ns += time_ns(bytes * operands, table_.reduce_mb_per_s);
    } else {
      work_ns += time_ns(bytes, table_.copy_mb_per_s);
    }
    double& processor_ns = processor_free_ns_[node.rank];
    processor_ns = std::max(processor_ns, node.ready_ns) + work_ns;
    double begin_ns = node.done_ns = processor_ns;
    if (crossing_ns > 0) {
      double& port_ns = leaving_free_ns_[layout_.host_of(node.rank)];
      begin_ns = std::max(port_ns, processor_ns);
      node.done_ns = port_ns = begin_ns + crossing_ns;
    }
    last_ns_ = std::max(last_ns_, node.done_ns);
    for (const auto& [later, by_message] : node.next) {
      if (by_message) {
        events_.push({begin_ns, later, number});
      } else {
        reach(later, node.done_ns);
      }
    }
  }

  const std::vector<Plan>& plans_;
  const plan::Layout& layout_;
  const Load load_;
  const TuningTable& table_;
  std::vector<Node> nodes_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  double last_ns_ = 0;
  std::vector<std::vector<int>> first_;   // node of chunk 0 of [rank][step]
  std::vector<std::vector<int>> chunks_;  // of [rank][step]
  const int64_t most_chunks_;
  std::vector<double> processor_free_ns_;
  std::vector<double> leaving_free_ns_;  // the port of each host, in each direction
  std::vector<double> coming_free_ns_;
};

}  // namespace

double predicted_us(const std::vector<Plan>& plans, const plan::Layout& layout, const Load& load,
                    const TuningTable& table) {
  const Result<std::vector<plan::Message>> messages = plan::match(plans);
  if (!messages.ok()) return 0;
  return Clock(plans, layout, load, table).run(*messages);
}

}  // namespace ciuic::tuner
