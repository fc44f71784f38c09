// SPDX-License-Identifier: Apache-2.0
// engine_fuzz.cc: real engines run real plans, while the input changes, drops, doubles, swaps and
// invents messages between them, and calls what the others do not. Every operation ends, in a typed
// error or well; nothing is written beyond a buffer; no memory is kept.

#include <array>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/work_state.h"
#include "hostile_link.h"
#include "input.h"
#include "plan/registry.h"

using namespace ciuic;
using fuzz::HostileLink;
using fuzz::Input;
using fuzz::Message;
using fuzz::Pipe;

namespace {

constexpr uint32_t kEpoch = 3;
constexpr uint32_t kGroup = 7;
constexpr int kMaxCalls = 12;
constexpr size_t kMaxMessages = 40;  // a rank
constexpr int kTypes = static_cast<int>(wire::kLastMessageType);
constexpr TimeNs kTimeout = 1'000'000'000;

// One call of a collective, as all ranks make it.
struct Drawn {
  plan::Operation operation{};
  plan::Algorithm algorithm{};
  int root = 0;
  int64_t count = 0;
  DataType dtype{};
  ReduceOp op{};
  size_t chunk_bytes = 0;
  bool in_place = false;
};

Drawn take_call(Input* input, int ranks) {
  Drawn call;
  call.operation = static_cast<plan::Operation>(input->below(plan::kOperations));
  const std::vector<plan::Algorithm> known = plan::algorithms_for(call.operation);
  call.algorithm = known[static_cast<size_t>(input->below(static_cast<int>(known.size())))];
  call.root = input->below(ranks);
  call.dtype = static_cast<DataType>(input->below(kDataTypes));
  call.op = static_cast<ReduceOp>(input->below(kReduceOps));
  if (!is_reducible(call.dtype, call.op)) call.op = ReduceOp::kSum;
  call.count = input->flag() ? input->u8() : input->u16() % 9000;
  if (call.operation == plan::Operation::kBarrier) call.count = 0;
  call.chunk_bytes = size_t{64} << input->below(10);
  call.in_place = input->flag();
  return call;
}

// What one rank has called.
struct Pending {
  std::unique_ptr<std::byte[]> input;
  std::unique_ptr<std::byte[]> output;
  engine::WorkState* work = nullptr;
};

class World {
 public:
  explicit World(Input* input);
  ~World();

  void run_script();
  void come_to_an_end();

 private:
  struct Rank {
    std::unique_ptr<memory::StagingPool> staging;
    std::unique_ptr<engine::Engine> engine;
    engine::Group* group = nullptr;
    std::vector<Pending> pending;
    std::vector<Pending> messages;
  };

  Pipe& pipe(int from, int to) { return *pipes_[static_cast<size_t>(from * ranks_ + to)]; }
  void submit(int rank, bool differs);
  void post(int rank);
  bool step(int rank);
  void decide();
  void change(Pipe* pipe);
  void change_header(wire::Header* header);
  void check(Message* message, Pipe* pipe);

  Input* input_;
  int ranks_;
  bool is_arbitrated_;
  plan::Layout layout_{{0}};
  std::vector<Drawn> calls_;
  std::vector<std::shared_ptr<Pipe>> pipes_;
  std::vector<Rank> all_;
  TimeNs now_ = 1;
  bool is_honest_ = true;
};

World::World(Input* input) : input_(input), ranks_(2 + input->below(3)) {
  is_arbitrated_ = input->flag();
  std::vector<int> hosts;
  for (int rank = 0; rank < ranks_; ++rank) hosts.push_back(input->below(2));
  layout_ = plan::Layout(hosts);
  for (int calls = 1 + input->below(kMaxCalls); calls > 0; --calls) {
    calls_.push_back(take_call(input, ranks_));
  }
  HostileLink::Manner manner;
  manner.sends_at_once = input->flag();
  manner.places_from = input->flag() ? SIZE_MAX : size_t{1} << input->below(13);
  for (int i = 0; i < ranks_ * ranks_; ++i) pipes_.push_back(std::make_shared<Pipe>());
  const int window = 1 + input->below(4);
  const uint32_t first = input->flag() ? 0 : 0xffff'fffe;
  for (int rank = 0; rank < ranks_; ++rank) {
    Rank& made = all_.emplace_back();
    made.staging = std::make_unique<memory::StagingPool>(1 << 20);
    made.engine = std::make_unique<engine::Engine>(made.staging.get());
    engine::GroupConfig config;
    config.id = kGroup;
    config.epoch = kEpoch;
    config.rank = rank;
    config.window = window;
    config.first_sequence = first;
    config.is_arbitrated = is_arbitrated_;
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer == rank) {
        config.links.emplace_back();
        continue;
      }
      const auto at = [&](int from, int to) {
        return pipes_[static_cast<size_t>(from * ranks_ + to)];
      };
      auto link = std::make_unique<HostileLink>(peer, manner, at(rank, peer), at(peer, rank));
      link->epoch = kEpoch;
      link->group = kGroup;
      config.links.push_back(std::move(link));
    }
    made.group = made.engine->add_group(std::move(config));
  }
}

World::~World() {
  for (Rank& rank : all_) {
    [[maybe_unused]] const Status unheard = rank.engine->remove_group(rank.group);
    for (Pending& pending : rank.pending) pending.work->release();
    for (Pending& pending : rank.messages) pending.work->release();
    rank.engine.reset();
    rank.staging->trim();
    fuzz::require(rank.staging->held() == 0, "all staging memory is given back");
  }
}

void World::submit(int rank, bool differs) {
  Rank& caller = all_[static_cast<size_t>(rank)];
  const size_t number = caller.pending.size();
  if (number >= calls_.size()) return;
  const Drawn& call = calls_[number];
  auto plan = std::make_shared<plan::Plan>(
      plan::make(call.operation, call.algorithm, layout_, rank, call.root));
  const auto element = static_cast<int64_t>(size_of(call.dtype));
  const auto bytes = [&](plan::Space space) {
    return static_cast<size_t>(plan->space_elements(space, call.count) * element);
  };
  Pending& pending = caller.pending.emplace_back();
  pending.input = std::make_unique<std::byte[]>(bytes(plan::Space::kInput));
  pending.output = std::make_unique<std::byte[]>(bytes(plan::Space::kOutput));
  engine::Request request;
  request.operation = plan::name_of(call.operation);
  request.input = pending.input.get();
  request.output = pending.output.get();
  if (call.in_place && plan->allows_in_place && bytes(plan::Space::kOutput) > 0) {
    // The smaller one lies in the larger one.
    const int64_t at = plan->input_offset * call.count * element;
    const auto in = static_cast<int64_t>(bytes(plan::Space::kInput));
    const auto out = static_cast<int64_t>(bytes(plan::Space::kOutput));
    if (at >= 0 && at + in <= out) request.input = request.output + at;
    if (at < 0 && out - at <= in) request.output = pending.input.get() - at;
  }
  request.count = call.count;
  request.dtype = call.dtype;
  request.op = call.op;
  request.chunk_bytes = call.chunk_bytes;
  request.fingerprint = static_cast<uint32_t>(number) * 17 + (differs ? 1 : 0);
  request.timeout_ms = kTimeout / 1'000'000;
  request.deadline = now_ + kTimeout;
  request.plan = std::move(plan);
  if (differs) is_honest_ = false;
  pending.work = caller.engine->submit(caller.group, std::move(request), now_);
}

// A send or receive, of which few meet.
void World::post(int rank) {
  Rank& caller = all_[static_cast<size_t>(rank)];
  if (caller.messages.size() >= kMaxMessages) return;
  is_honest_ = false;
  Pending& pending = caller.messages.emplace_back();
  engine::Request request;
  const bool sends = input_->flag();
  request.kind = sends ? engine::RequestKind::kSend : engine::RequestKind::kReceive;
  request.operation = sends ? "send" : "recv";
  request.peer = input_->below(ranks_ + (sends ? 0 : 1)) - (sends ? 0 : 1);
  request.tag = input_->below(3) - (sends ? 0 : 1);
  request.dtype = input_->below(16) == 0 ? DataType::kInt64 : DataType::kUInt8;
  constexpr int64_t kCounts[] = {0, 1, 5000, engine::kEagerBytes, engine::kEagerBytes + 1, 600'000};
  request.count = kCounts[input_->below(6)];
  const size_t bytes = static_cast<size_t>(request.count) * size_of(request.dtype);
  pending.input = std::make_unique<std::byte[]>(bytes);
  request.input = request.output = pending.input.get();
  request.timeout_ms = kTimeout / 1'000'000;
  request.deadline = now_ + kTimeout;
  pending.work = caller.engine->submit(caller.group, std::move(request), now_);
}

bool World::step(int rank) {
  const bool moved = all_[static_cast<size_t>(rank)].engine->step(now_);
  decide();
  return moved;
}

// The first cause ends the group everywhere, as the control plane has it.
void World::decide() {
  engine::Cause cause;
  for (Rank& rank : all_) {
    if (!rank.engine->has_causes() || !rank.engine->take_cause(rank.group, &cause)) continue;
    fuzz::require(!cause.status.ok(), "a cause is an error");
    for (Rank& each : all_) each.engine->end_group(each.group, cause.status);
  }
}

void World::change_header(wire::Header* header) {
  const uint32_t small = input_->u8();
  switch (input_->below(13)) {
    case 0: header->type = static_cast<wire::MessageType>(small % (kTypes + 2)); break;
    case 1: header->lane = static_cast<uint8_t>(small); break;
    case 2: header->step = static_cast<uint16_t>(header->step + small - 2); break;
    case 3: header->epoch ^= small; break;
    case 4: header->group ^= small; break;
    case 5: header->sequence += small - 4; break;
    case 6: header->sequence = input_->u32(); break;
    case 7: header->fingerprint ^= small; break;
    case 8: header->chunk += small - 2; break;
    case 9: header->acked = input_->flag() ? input_->u32() : header->acked + small - 2; break;
    case 10: header->payload_bytes = header->payload_bytes * small / 256; break;
    case 11: header->message_bytes = header->payload_bytes + uint64_t{small}; break;
    default: header->message_bytes = input_->flag() ? input_->u64() : input_->u16();
  }
}

// As a link does it: what is no header ends the link, and a payload is as long as the header says.
void World::check(Message* message, Pipe* pipe) {
  std::array<std::byte, wire::kHeaderBytes> bytes;
  wire::encode(message->header, bytes);
  Result<wire::Header> header = wire::decode(bytes);
  if (!header.ok() || header->payload_bytes > (1 << 20)) {
    pipe->is_broken = true;
    return;
  }
  message->header = *header;
  message->payload = std::make_unique<std::byte[]>(header->payload_bytes);
}

void World::change(Pipe* pipe) {
  is_honest_ = false;
  const int what = input_->below(9);
  auto& arrived = pipe->arrived;
  if (what == 0) {
    pipe->is_cut = true;
    return;
  }
  if (what == 1 || arrived.empty()) {  // one that nobody sent
    Message message;
    message.header.epoch = kEpoch;
    message.header.group = kGroup;
    message.header.type = static_cast<wire::MessageType>(1 + input_->below(kTypes));
    message.header.fingerprint = static_cast<uint32_t>(input_->below(kMaxCalls)) * 17;
    for (int fields = input_->below(6); fields > 0; --fields) change_header(&message.header);
    check(&message, pipe);
    if (!pipe->is_broken) arrived.push_back(std::move(message));
    return;
  }
  const size_t at = input_->u8() % arrived.size();
  if (what == 2) {
    arrived.erase(arrived.begin() + static_cast<std::ptrdiff_t>(at));
  } else if (what == 3) {
    std::swap(arrived[at], arrived.front());
  } else {
    Message message;
    message.header = arrived[at].header;
    for (int fields = what == 4 ? 0 : 1 + input_->below(3); fields > 0; --fields) {
      change_header(&message.header);
    }
    check(&message, pipe);
    if (pipe->is_broken) return;
    if (what == 4) {
      arrived.insert(arrived.begin() + static_cast<std::ptrdiff_t>(at), std::move(message));
    } else {
      arrived[at] = std::move(message);
    }
  }
}

void World::run_script() {
  for (int actions = 0; !input_->empty() && actions < 400; ++actions) {
    const int rank = input_->below(ranks_);
    const int peer = (rank + 1 + input_->below(ranks_ - 1)) % ranks_;
    switch (input_->below(14)) {
      case 0:
      case 1: submit(rank, false); break;
      case 2: submit(rank, input_->below(16) == 0); break;
      case 3:
      case 4: change(&pipe(rank, peer)); break;
      case 5: pipe(rank, peer).flush(static_cast<size_t>(input_->below(8))); break;
      case 6: pipe(rank, peer).room = static_cast<size_t>(1 + input_->below(8)); break;
      case 7: all_[static_cast<size_t>(rank)].engine->before_sleep(); break;
      case 8: now_ += input_->u16(); break;
      case 9:
      case 10: post(rank); break;
      default: step(rank);
    }
  }
}

void World::come_to_an_end() {
  bool all_called = true;
  for (int rank = 0; rank < ranks_; ++rank) {
    const Rank& caller = all_[static_cast<size_t>(rank)];
    while (caller.pending.size() < calls_.size() && is_honest_) submit(rank, false);
    all_called = all_called && caller.pending.size() == calls_.size();
  }
  for (const auto& each : pipes_) each->room = 64;
  int still = 0;
  for (int round = 0; still < 70; ++round) {
    fuzz::require(round < 200'000, "engines come to rest");
    bool moved = false;
    for (const auto& each : pipes_) each->flush(SIZE_MAX);
    for (int rank = 0; rank < ranks_; ++rank) moved = step(rank) || moved;
    still = moved ? 0 : still + 1;
    if (still == 4) {
      for (Rank& rank : all_) rank.engine->before_sleep();
    }
  }
  now_ += 2 * kTimeout;
  for (int rank = 0; rank < ranks_; ++rank) step(rank);
  for (Rank& rank : all_) {
    for (const Pending& pending : rank.pending) {
      fuzz::require(pending.work->done(), "every operation ends by its deadline");
      const bool ok = pending.work->status().ok();
      if (is_honest_ && all_called) fuzz::require(ok, "undisturbed, every operation ends well");
    }
    for (const Pending& pending : rank.messages) {
      fuzz::require(pending.work->done(), "every message ends by its deadline");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  World world(&input);
  world.run_script();
  world.come_to_an_end();
  return 0;
}
