// SPDX-License-Identifier: Apache-2.0
// control_fuzz.cc: what ranks and the hub of a control plane say to each other; as bytes, and as
// messages in any order from ranks that have proven the secret and then say anything.

#include <deque>
#include <memory>
#include <vector>

#include "communicator/control_messages.h"
#include "communicator/control_node.h"
#include "input.h"

using namespace ciuic;
using control::Message;

namespace {

constexpr int kSize = 4;
constexpr TimeNs kMs = 1'000'000;

// The others, as far as this rank sees them.
class HostileLines final : public control::Lines {
 public:
  void send(int rank, const Message& message) override {
    fuzz::require(rank >= 0 && rank < kSize, "a rank that there is");
    const Result<Message> sent = control::decode_message(control::encode(message));
    fuzz::require(sent.ok() && sent->kind == message.kind, "what is sent can be read");
    fuzz::require(++sent_ < 100'000, "a bounded number of answers");
  }
  bool receive(int rank, Message* message) override {
    auto& waiting = waiting_[static_cast<size_t>(rank)];
    if (waiting.empty()) return false;
    *message = std::move(waiting.front());
    waiting.pop_front();
    return true;
  }
  bool is_lost(int rank) override { return lost_[static_cast<size_t>(rank)]; }

  void put(int rank, Message message) { waiting_[static_cast<size_t>(rank)].push_back(message); }
  void lose(int rank) { lost_[static_cast<size_t>(rank)] = true; }

 private:
  std::vector<std::deque<Message>> waiting_ = std::vector<std::deque<Message>>(kSize);
  std::vector<bool> lost_ = std::vector<bool>(kSize);
  int sent_ = 0;
};

class Path final : public engine::DataPath {
 public:
  void end(const Status& status) override {
    fuzz::require(!status.ok(), "no end without an error");
    fuzz::require_text(status);
    ++ends;
  }
  void mark_gone(int rank, const Status& why) override {
    fuzz::require(rank >= 0 && rank < kSize, "a rank that there is");
    fuzz::require(!why.ok(), "nobody is gone without an error");
  }
  engine::CallRecord call_record(uint32_t sequence) override {
    engine::CallRecord record;
    if (sequence < next) record.operation = "all_reduce";
    record.sequence = sequence;
    return record;
  }
  engine::GroupProgress progress_of_group() override {
    engine::GroupProgress progress;
    progress.next = next;
    progress.waits_since = waits_since;
    progress.has_ended = ends > 0;
    return progress;
  }

  bool needs(uint32_t sequence, int rank) override {
    fuzz::require(rank >= 0 && rank < kSize, "a rank that there is");
    return (sequence + static_cast<uint32_t>(rank)) % 2 == 0;
  }

  int ends = 0;
  uint32_t next = 3;
  TimeNs waits_since = kNever;
};

Message message_of(fuzz::Input* input) {
  Message message;
  message.kind = static_cast<control::MessageKind>(1 + input->below(9));
  message.status = {static_cast<StatusCode>(input->below(12)), std::string(input->text())};
  message.about = input->below(8) - 2;
  message.flag = input->flag();
  message.is_late = input->flag();
  message.sequence = input->flag() ? input->u32() : input->below(8);
  message.next = input->flag() ? input->u32() : input->below(8);
  message.fingerprint = input->below(4);
  message.operation = std::string(input->text());
  message.text = std::string(input->text());
  return message;
}

void run_node(fuzz::Input* input) {
  HostileLines lines;
  Path path;
  control::Settings settings = control::Settings::for_timeout(10'000);
  settings.rank = input->below(2) * 2;  // the hub's, or another
  for (int rank = 0; rank < kSize; ++rank) settings.names.push_back("rank");
  TimeNs now = 1;
  control::Node node(settings, &lines, &path, now);
  for (int actions = 0; !input->empty() && actions < 200; ++actions) {
    const int from = settings.rank == 0 ? 1 + input->below(kSize - 1) : 0;
    switch (input->below(8)) {
      case 0: lines.lose(from); break;
      case 1: now += input->u8() * kMs; break;
      case 2: now += input->u16() * kMs; break;
      case 3: path.waits_since = path.waits_since == kNever ? now : kNever; break;
      case 4:
        node.report({.status = {StatusCode::kTimeout, "late"},
                     .has_operation = input->flag(),
                     .sequence = static_cast<uint32_t>(input->below(8)),
                     .operation = "all_reduce",
                     .is_late = input->flag()},
                    now);
        break;
      default: {
        // As it comes over a line: what cannot be read never gets here.
        const Result<Message> read = control::decode_message(control::encode(message_of(input)));
        if (read.ok()) lines.put(from, *read);
      }
    }
    node.step(now);
  }
  // A cause of this rank's own is decided on, whatever the others say or leave unsaid.
  node.report({.status = {StatusCode::kAborted, "aborted"}}, now);
  for (int passes = 0; passes < 100 && path.ends == 0; ++passes) {
    now += 100 * kMs;
    node.step(now);
  }
  fuzz::require(path.ends == 1, "a group that is halted ends, once");
  node.leave(now);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  if (input.flag()) {
    run_node(&input);
    return 0;
  }
  const Result<Message> message = control::decode_message(input.rest());
  if (!message.ok()) return 0;
  const std::string written = control::encode(*message);
  fuzz::require(written.size() <= control::kMaxMessageBytes, "a bounded message");
  const Result<Message> again = control::decode_message(written);
  fuzz::require(again.ok() && control::encode(*again) == written, "a message reads the same");
  return 0;
}
