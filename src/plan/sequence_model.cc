// SPDX-License-Identifier: Apache-2.0
// sequence_model.cc: operations one after another, under a model of the engine's flow control.

#include "plan/sequence_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "plan/sequence_state.h"
#include "plan/validate.h"

namespace ciuic::plan {

namespace {

class Model {
 public:
  Model(const Layout& layout, const SequenceSetup& setup)
      : layout_(layout), setup_(setup), size_(layout.size()), random_(setup.seed) {
    ranks_.resize(size_);
    links_.assign(size_, std::vector<std::deque<Packet>>(size_));
    for (RankState& rank : ranks_) {
      rank.eager.resize(size_);
      rank.unacked.assign(size_, 0);
      rank.last_unacked.assign(size_, 0);
      rank.slots.resize(setup.slots);
    }
  }

  Status add(const std::vector<Plan>& plans) {
    Result<OperationState> state = operation_state(plans);
    if (!state.ok()) return state.status();
    operations_.push_back(std::move(*state));
    return {};
  }

  // Lets ranks do one thing each in random order; whenever nothing has moved for a while, all that
  // is possible on every rank. If then nothing moves either, it never will.
  Status run() {
    int idle = 0;
    while (failure_.ok() && !all_ended()) {
      const int rank = static_cast<int>(random_() % size_);
      if (rank == setup_.slow_rank && random_() % 64 != 0) continue;
      idle = act(rank) ? 0 : idle + 1;
      if (idle < 4 * size_) continue;
      bool moved = false;
      for (int other = 0; other < size_; ++other) {
        while (failure_.ok() && act(other)) moved = true;
      }
      if (!moved && failure_.ok()) return deadlock();
      idle = 0;
    }
    return failure_;
  }

 private:
  void fail(int operation, int rank, int step, const std::string& what) {
    if (!failure_.ok()) return;
    failure_ = Status(StatusCode::kInvalidArgument,
                      fmt::format("operation {}, rank {}, {}: {}", operation, rank,
                                  step_text(plan(operation, rank), step), what));
  }

  const Plan& plan(int operation, int rank) const { return (*operations_[operation].plans)[rank]; }
  Activity& activity(int operation, int rank) { return operations_[operation].activities[rank]; }

  bool all_ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [this](const RankState& rank) {
      return rank.acked == static_cast<int>(operations_.size());
    });
  }

  Status deadlock() {
    for (int rank = 0; rank < size_; ++rank) {
      const int operation = ranks_[rank].acked;
      if (operation == static_cast<int>(operations_.size())) continue;
      const std::vector<int>& open = activity(operation, rank).open;
      fail(operation, rank, open.empty() ? 0 : open.front(), "deadlock");
    }
    return failure_;
  }

  // One thing that the rank can do, from a random kind on.
  bool act(int rank) {
    constexpr int kKinds = 5;
    const int first = static_cast<int>(random_() % kKinds);
    for (int kind = 0; kind < kKinds; ++kind) {
      switch ((first + kind) % kKinds) {
        case 0:
          if (start(rank)) return true;
          break;
        case 1:
          if (take_packet(rank)) return true;
          break;
        case 2:
          if (run_steps(rank)) return true;
          break;
        case 3:
          if (set_aside(rank)) return true;
          break;
        default:
          if (end(rank)) return true;
          break;
      }
    }
    return false;
  }

  // The next operation, where not too many are active.
  bool start(int rank) {
    const int first = ranks_[rank].acked;
    const int end = std::min<int>(first + setup_.max_active, static_cast<int>(operations_.size()));
    for (int operation = first; operation < end; ++operation) {
      Activity& candidate = activity(operation, rank);
      if (candidate.started) continue;
      candidate.started = true;
      candidate.buffer = free_buffer(rank);
      // The caller fills the buffers anew.
      for (auto& [key, version] : ranks_[rank].versions) {
        if (std::get<0>(key) == candidate.buffer) ++version;
      }
      announce(operation, rank);
      return true;
    }
    return false;
  }

  // A buffer that no active operation of the rank has.
  int free_buffer(int rank) {
    for (int buffer = 0;; ++buffer) {
      bool used = false;
      for (int operation = 0; operation < static_cast<int>(operations_.size()); ++operation) {
        const Activity& other = activity(operation, rank);
        used |= other.started && !other.ended && other.buffer == buffer;
      }
      if (!used) return buffer;
    }
  }

  void announce(int operation, int rank) {
    if (setup_.defect == Defect::kAnnouncementLost) return;
    for (int peer = 0; peer < size_; ++peer) {
      if (operations_[operation].messages_from[rank][peer] * setup_.chunks <= 1) continue;
      push(rank, peer, {.type = Packet::Type::kAnnounce, .operation = operation});
    }
  }

  void push(int from, int to, Packet packet) {
    RankState& sender = ranks_[from];
    packet.acked = sender.acked;
    if (sender.last_unacked[to] < sender.acked) sender.unacked[to] = 0;
    links_[from][to].push_back(std::move(packet));
  }

  // Readers never stop reading: what comes is kept with its stream.
  bool take_packet(int rank) {
    const int first = static_cast<int>(random_() % size_);
    for (int index = 0; index < size_; ++index) {
      const int peer = (first + index) % size_;
      std::deque<Packet>& link = links_[peer][rank];
      if (link.empty()) continue;
      const Packet packet = std::move(link.front());
      link.pop_front();
      std::erase_if(ranks_[rank].eager[peer],
                    [&](int operation) { return operation < packet.acked; });
      Activity& own = activity(packet.operation, rank);
      if (packet.type != Packet::Type::kAck) own.heard[peer] = true;
      if (packet.type == Packet::Type::kCredit) {
        --own.under_way[operations_[packet.operation].messages[packet.message].sender_stream];
      }
      if (packet.type == Packet::Type::kData) accept(rank, packet);
      return true;
    }
    return false;
  }

  void accept(int rank, const Packet& packet) {
    OperationState& operation = operations_[packet.operation];
    const Message& message = operation.messages[packet.message];
    const int before = operation.before[packet.message];
    int& arrived = operation.arrived[packet.message];
    if (packet.chunk != arrived || (before >= 0 && operation.arrived[before] < setup_.chunks)) {
      fail(packet.operation, rank, message.receive_step, "its chunks arrive out of order");
    }
    ++arrived;
    std::deque<Packet>& inbox = activity(packet.operation, rank).inbox[message.receiver_stream];
    inbox.push_back(packet);
    if (static_cast<int>(inbox.size()) > setup_.window) {
      fail(packet.operation, rank, message.receive_step, "more chunks arrive than it gave credits");
    }
    if (packet.slot >= 0) return;
    // Across hosts it is read from the sender's buffer only now.
    if (versions(packet.operation, message.sender, message.send_step, packet.chunk) !=
        packet.written) {
      fail(packet.operation, message.sender, message.send_step,
           fmt::format("its buffer is overwritten while rank {} still reads it", rank));
    }
    ++operation.taken[packet.message];
    update_send(packet.operation, message.sender, message.send_step);
  }

  std::tuple<int, Space, int, int> cell(int operation, int rank, BlockRange range, int block,
                                        int chunk) {
    range = plan(operation, rank).in_place(range);
    return {activity(operation, rank).buffer, range.space, range.first + block, chunk};
  }

  std::vector<int> versions(int operation, int rank, int step, int chunk) {
    const BlockRange range = plan(operation, rank).steps[step].source;
    std::vector<int> found;
    for (int block = 0; block < range.count; ++block) {
      found.push_back(ranks_[rank].versions[cell(operation, rank, range, block, chunk)]);
    }
    return found;
  }

  // A chunk of a send is done when no receiver needs the buffer for it.
  void update_send(int operation, int rank, int step) {
    int slowest = setup_.chunks;
    for (const int message : operations_[operation].outgoing[rank][step]) {
      slowest = std::min(slowest, operations_[operation].taken[message]);
    }
    activity(operation, rank).done[step] = slowest;
  }

  // Copies a payload out of its slot, so that the writer gets it back.
  bool set_aside(int rank) {
    for (size_t number = 0; number < operations_.size(); ++number) {
      for (std::deque<Packet>& inbox : operations_[number].activities[rank].inbox) {
        for (Packet& packet : inbox) {
          if (packet.slot < 0) continue;
          read_slot(rank, &packet);
          return true;
        }
      }
    }
    return false;
  }

  void read_slot(int rank, Packet* packet) {
    if (packet->slot < 0) return;
    const Message& message = operations_[packet->operation].messages[packet->message];
    Slot& slot = ranks_[message.sender].slots[packet->slot];
    if (slot.content != packet->tag) {
      fail(packet->operation, rank, message.receive_step,
           fmt::format("rank {}'s slot was written again before it was read", message.sender));
    }
    if (setup_.defect != Defect::kSlotNeverReleased) --slot.readers;
    packet->slot = -1;
  }

  bool ready(int operation, int rank, int step, int chunk) {
    const Activity& own = activity(operation, rank);
    for (const Dependency& dependency : plan(operation, rank).steps[step].after) {
      int done = own.done[dependency.step];
      if (setup_.defect == Defect::kCompletionLost && dependency.step == 0) done = 0;
      if (done < (dependency.whole ? setup_.chunks : chunk + 1)) return false;
    }
    return true;
  }

  bool run_steps(int rank) {
    for (int operation = 0; operation < static_cast<int>(operations_.size()); ++operation) {
      Activity& own = activity(operation, rank);
      if (!own.started || own.ended) continue;
      const size_t first = own.open.empty() ? 0 : random_() % own.open.size();
      for (size_t index = 0; index < own.open.size(); ++index) {
        const int step = own.open[(first + index) % own.open.size()];
        const bool sends = plan(operation, rank).steps[step].kind == StepKind::kSend;
        if (sends ? send(operation, rank, step) : consume(operation, rank, step)) return true;
      }
    }
    return false;
  }

  // Sends a chunk to all of the step's peers at once, where the flow control lets it go to all.
  bool send(int operation, int rank, int step) {
    OperationState& state = operations_[operation];
    const std::vector<int>& messages = state.outgoing[rank][step];
    const int chunk = state.sent[messages.front()];
    if (chunk == setup_.chunks || !ready(operation, rank, step, chunk)) return false;
    bool shared = false;
    for (const int number : messages) {
      if (!may_send(operation, number)) return false;
      shared |= layout_.same_host(rank, state.messages[number].receiver);
    }
    const Tag tag{operation, rank, step, chunk};
    const int slot = shared ? take_slot(rank, tag) : -1;
    if (shared && slot < 0) return false;
    for (const int number : messages) {
      Packet packet{.operation = operation, .message = number, .chunk = chunk, .tag = tag};
      const int peer = state.messages[number].receiver;
      if (layout_.same_host(rank, peer)) {
        packet.slot = slot;
        ++ranks_[rank].slots[slot].readers;
        ++state.taken[number];
      } else {
        packet.written = versions(operation, rank, step, chunk);
      }
      if (!state.activities[rank].heard[peer]) ranks_[rank].eager[peer].push_back(operation);
      ++state.sent[number];
      ++state.activities[rank].under_way[state.messages[number].sender_stream];
      push(rank, peer, std::move(packet));
    }
    update_send(operation, rank, step);
    return true;
  }

  bool may_send(int operation, int number) {
    const OperationState& state = operations_[operation];
    const Message& message = state.messages[number];
    const Activity& own = state.activities[message.sender];
    const int before = state.before[number];
    if (before >= 0 && state.sent[before] < setup_.chunks &&
        setup_.defect != Defect::kStreamOrderIgnored) {
      return false;
    }
    if (own.heard[message.receiver]) {
      return own.under_way[message.sender_stream] < setup_.window ||
             setup_.defect == Defect::kWindowIgnored;
    }
    // Eager: the first message of the first stream with the peer, of one chunk, while the peer is
    // not known to be too many such messages behind.
    const std::vector<Stream>& streams = plan(operation, message.sender).streams;
    const auto first = std::find_if(streams.begin(), streams.end(), [&](const Stream& stream) {
      return stream.peer == message.receiver;
    });
    return message.position == 0 && first - streams.begin() == message.sender_stream &&
           setup_.chunks == 1 && own.under_way[message.sender_stream] < setup_.window &&
           static_cast<int>(ranks_[message.sender].eager[message.receiver].size()) <
               setup_.eager_operations;
  }

  // A slot of the rank's pool that nobody reads.
  int take_slot(int rank, const Tag& tag) {
    std::vector<Slot>& slots = ranks_[rank].slots;
    for (size_t number = 0; number < slots.size(); ++number) {
      if (slots[number].readers > 0 && setup_.defect != Defect::kSlotReusedEarly) continue;
      slots[number].content = tag;
      return static_cast<int>(number);
    }
    return -1;
  }

  // Does one chunk of a step that receives or copies.
  bool consume(int operation, int rank, int step) {
    OperationState& state = operations_[operation];
    Activity& own = state.activities[rank];
    const int chunk = own.done[step];
    if (chunk == setup_.chunks || !ready(operation, rank, step, chunk)) return false;
    for (const int number : state.incoming[rank][step]) {
      const auto& inbox = own.inbox[state.messages[number].receiver_stream];
      if (inbox.empty() || inbox.front().message != number) return false;
    }
    for (const int number : state.incoming[rank][step]) {
      const Message& message = state.messages[number];
      std::deque<Packet>& inbox = own.inbox[message.receiver_stream];
      read_slot(rank, &inbox.front());
      inbox.pop_front();
      if (setup_.defect == Defect::kCreditLost) continue;
      push(rank, message.sender,
           {.type = Packet::Type::kCredit, .operation = operation, .message = number});
    }
    const BlockRange target = plan(operation, rank).steps[step].target;
    for (int block = 0; block < target.count; ++block) {
      ++ranks_[rank].versions[cell(operation, rank, target, block, chunk)];
    }
    ++own.done[step];
    return true;
  }

  bool end(int rank) {
    for (int operation = 0; operation < static_cast<int>(operations_.size()); ++operation) {
      OperationState& state = operations_[operation];
      Activity& own = state.activities[rank];
      if (!own.started || own.ended) continue;
      std::erase_if(own.open, [&](int step) {
        if (setup_.defect != Defect::kEndsBeforeSent) return own.done[step] == setup_.chunks;
        const std::vector<int>& sends = state.outgoing[rank][step];
        return std::all_of(sends.begin(), sends.end(),
                           [&](int message) { return state.sent[message] == setup_.chunks; }) &&
               (!sends.empty() || own.done[step] == setup_.chunks);
      });
      if (!own.open.empty()) continue;
      own.ended = true;
      acknowledge(operation, rank);
      return true;
    }
    return false;
  }

  // Tells peers that sent much since they were last told how far this rank is.
  void acknowledge(int operation, int rank) {
    RankState& own = ranks_[rank];
    for (int peer = 0; peer < size_; ++peer) {
      if (operations_[operation].messages_from[rank][peer] == 0) continue;
      ++own.unacked[peer];
      own.last_unacked[peer] = std::max(own.last_unacked[peer], operation);
    }
    const int before = own.acked;
    const int all = static_cast<int>(operations_.size());
    while (own.acked < all && activity(own.acked, rank).ended) ++own.acked;
    for (int peer = 0; own.acked != before && peer < size_; ++peer) {
      if (own.unacked[peer] < std::max(1, setup_.eager_operations / 2)) continue;
      push(rank, peer, {.type = Packet::Type::kAck, .operation = operation});
    }
  }

  const Layout& layout_;
  const SequenceSetup setup_;
  const int size_;
  std::mt19937_64 random_;
  std::vector<OperationState> operations_;
  std::vector<RankState> ranks_;
  std::vector<std::vector<std::deque<Packet>>> links_;  // [from][to]
  Status failure_;
};

}  // namespace

Status run_sequence(const Layout& layout, const std::vector<std::vector<Plan>>& operations,
                    const SequenceSetup& setup) {
  Model model(layout, setup);
  for (const std::vector<Plan>& plans : operations) CIUIC_RETURN_IF_ERROR(model.add(plans));
  return model.run();
}

}  // namespace ciuic::plan
