// SPDX-License-Identifier: Apache-2.0
// sim_network.cc: draws connections, keeps the clock.

#include "sim/sim_network.h"

#include <fmt/format.h>

#include <algorithm>

namespace ciuic::sim {

SimNetwork::SimNetwork(uint64_t seed, int actors, NetworkOptions options)
    : options_(options), random_(seed), last_step_(actors) {}

SimNetwork::~SimNetwork() = default;

void SimNetwork::wake(int process, TimeNs at) {
  if (at == kNever) return;
  queue_.push({std::max(at, now_), ++wakes_, process});
}

bool SimNetwork::next(int* process) {
  while (!queue_.empty()) {
    const Wake wake = queue_.top();
    queue_.pop();
    // A step since, at that time or later, has already seen what this wake is for.
    const LastStep& last = last_step_[wake.process];
    if (wake.number < last.number && wake.at <= last.at) continue;
    now_ = wake.at;
    *process = wake.process;
    return true;
  }
  return false;
}

void SimNetwork::stepping(int process) {
  last_step_[process] = {now_, wakes_ + 1};
  digest_ = mix(digest_ ^ mix(static_cast<uint64_t>(now_)) ^ static_cast<uint64_t>(process));
}

void SimNetwork::complain(const std::string& what) {
  if (complaints_.size() < 20) complaints_.push_back(what);
}

void SimNetwork::sending(int from, int to, const wire::Header& header) {
  if (!options_.prints) return;
  static constexpr const char* kTypes[] = {"?",   "data",  "announce", "credit",
                                           "ack", "abort", "goodbye"};
  fmt::print(
      "{:>10} ns  {} -> {}  group {} {} {} lane {} message {} chunk {} of {} bytes, acked {}\n",
      now_, from, to, header.group, kTypes[static_cast<int>(header.type)], header.sequence,
      header.lane, header.step, header.chunk, header.message_bytes, header.acked);
}

ChannelOptions SimNetwork::draw(int from, int to, bool stream) {
  ChannelOptions options;
  options.latency_min = random_.spread(10, std::max<TimeNs>(11, options_.latency_max / 4));
  options.latency_max = options.latency_min + random_.spread(1, options_.latency_max);
  options.ps_per_byte = random_.spread(20, 20'000);
  options.queue_messages = static_cast<size_t>(random_.spread(1, 16));
  if (random_.chance(options_.stall_percent)) {
    options.stall_from = now_ + random_.spread(1, 2'000'000);
    options.stall_until = options.stall_from + random_.spread(1, 5'000'000);
  }
  if (random_.chance(options_.refuse_percent)) {
    options.refuse_percent = static_cast<int>(random_.between(1, 30));
  }
  if (random_.chance(options_.late_percent)) options.up_at = now_ + random_.spread(1, 3'000'000);
  if (stream) {
    options.socket_bytes = static_cast<size_t>(random_.spread(64, 128 * 1024));
    // Only a message that fits into the socket's buffer can be read as a whole.
    if (random_.chance(50)) {
      options.inline_bytes = static_cast<size_t>(
          random_.spread(1, static_cast<int64_t>(options.socket_bytes - wire::kHeaderBytes)));
    }
    if (options_.completion_delays && random_.chance(50)) {
      options.completion_delay = random_.spread(1, 200'000);
    }
  } else {
    options.inline_bytes = static_cast<size_t>(random_.between(0, 32));
  }
  if (from == options_.mutant_from && to == options_.mutant_to) {
    options.mutant = options_.mutant;
    options.mutant_after = options_.mutant_after;
  }
  return options;
}

std::shared_ptr<Channel> SimNetwork::make(uint32_t group, int from, int to, bool stream,
                                          const ChannelOptions& options,
                                          std::shared_ptr<SlotPool> pool) {
  std::shared_ptr<Channel> channel;
  if (stream) {
    channel = std::make_shared<StreamChannel>(this, from, to, options, random_.split());
  } else {
    channel =
        std::make_shared<SlotChannel>(this, from, to, options, random_.split(), std::move(pool));
  }
  connections_.push_back({group, from, to, stream, channel});
  return channel;
}

void SimNetwork::connect(uint32_t group, uint32_t epoch, const std::vector<int>& processes,
                         const std::vector<int>& host_of) {
  const int size = static_cast<int>(processes.size());
  links_.clear();
  links_.resize(size);
  std::vector<std::shared_ptr<SlotPool>> pools(size);
  for (auto& pool : pools) {
    pool = std::make_shared<SlotPool>(static_cast<int>(random_.spread(1, 8)));
  }
  for (auto& of_rank : links_) of_rank.resize(size);
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) {
      const bool stream = host_of[a] != host_of[b] || random_.chance(options_.stream_percent);
      const ChannelOptions options = draw(processes[a], processes[b], stream);
      ChannelOptions back_options = draw(processes[b], processes[a], stream);
      back_options.up_at = options.up_at;
      const auto there = make(group, processes[a], processes[b], stream, options, pools[a]);
      const auto back = make(group, processes[b], processes[a], stream, back_options, pools[b]);
      SimLinkConfig config;
      config.transport = stream ? "sim_stream" : "sim_slots";
      config.group = group;
      config.epoch = epoch;
      config.end_is_loss = stream;
      config.is_blind = options_.is_blind;
      config.peer = b;
      config.notice = random_.spread(1, 500'000);
      links_[a][b] = std::make_unique<SimLink>(this, config, there, back);
      config.peer = a;
      config.notice = random_.spread(1, 500'000);
      links_[b][a] = std::make_unique<SimLink>(this, config, back, there);
    }
  }
}

std::vector<std::unique_ptr<transport::Link>> SimNetwork::take_links(int rank) {
  return std::move(links_[rank]);
}

static bool joins(int from, int to, int process, int other) {
  if (other < 0) return from == process || to == process;
  return (from == process && to == other) || (from == other && to == process);
}

void SimNetwork::cut(int process, int other) {
  for (const Connection& connection : connections_) {
    if (joins(connection.from, connection.to, process, other)) connection.channel->cut(now_);
  }
}

void SimNetwork::drop(int process, int other) {
  for (const Connection& connection : connections_) {
    if (connection.stream && joins(connection.from, connection.to, process, other)) {
      connection.channel->drop();
    }
  }
}

void SimNetwork::die(int process, bool loses) {
  for (const Connection& connection : connections_) {
    if (connection.from == process) connection.channel->die(loses);
    if (connection.to == process) connection.channel->reader_died();
  }
}

void SimNetwork::set_lie(uint32_t group, int process, Lie* lie) {
  for (const Connection& connection : connections_) {
    if (connection.group == group && connection.from == process) connection.channel->set_lie(lie);
  }
}

size_t SimNetwork::unreleased() const {
  size_t count = 0;
  for (const Connection& connection : connections_) count += connection.channel->unreleased();
  return count;
}

}  // namespace ciuic::sim
