// SPDX-License-Identifier: Apache-2.0
// tuning_table.cc: the table as text, and its hash.

#include "tuner/tuning_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/hash.h"
#include "base/printable.h"
namespace ciuic::tuner {

namespace {

constexpr std::string_view kTitle = "ciuic tuning table 1";

struct Field {
  const char* name;
  int64_t TuningTable::* value;
  int64_t least;
  int64_t most;
};

constexpr int64_t kMostBytes = int64_t{1} << 40;
constexpr int64_t kMostChunk = int64_t{16} << 20;  // what a receiver believes of one message
constexpr int64_t kMostNs = 10'000'000'000;
constexpr int64_t kMostRate = 1'000'000'000;

constexpr Field kFields[] = {
    {"one_shot_read_bytes", &TuningTable::one_shot_read_bytes, 0, kMostBytes},
    {"direct_reduce_bytes", &TuningTable::direct_reduce_bytes, 0, kMostBytes},
    {"scratch_bytes", &TuningTable::scratch_bytes, 0, kMostBytes},
    {"shm_chunk_bytes", &TuningTable::shm_chunk_bytes, 4096, kMostChunk},
    {"tcp_chunk_bytes", &TuningTable::tcp_chunk_bytes, 4096, kMostChunk},
    {"step_ns", &TuningTable::step_ns, 0, kMostNs},
    {"shm_latency_ns", &TuningTable::shm_latency_ns, 0, kMostNs},
    {"shm_mb_per_s", &TuningTable::shm_mb_per_s, 1, kMostRate},
    {"tcp_latency_ns", &TuningTable::tcp_latency_ns, 0, kMostNs},
    {"tcp_message_ns", &TuningTable::tcp_message_ns, 0, kMostNs},
    {"tcp_mb_per_s", &TuningTable::tcp_mb_per_s, 1, kMostRate},
    {"copy_mb_per_s", &TuningTable::copy_mb_per_s, 1, kMostRate},
    {"reduce_mb_per_s", &TuningTable::reduce_mb_per_s, 1, kMostRate},
};

// A field that is added to the struct must be added to the list.
static_assert(sizeof(TuningTable) == sizeof(int64_t) * std::size(kFields));

Status wrong(std::string_view what) {
  return Status(StatusCode::kInvalidArgument, fmt::format("tuning table: {}", what));
}

// Takes the first line off `text`, without its end. False: there is none, or it has no end.
bool take_line(std::string_view* text, std::string_view* line) {
  const size_t end = text->find('\n');
  if (end == std::string_view::npos) return false;
  *line = text->substr(0, end);
  text->remove_prefix(end + 1);
  return true;
}

}  // namespace

std::string TuningTable::serialize() const {
  std::string text = fmt::format("{}\n", kTitle);
  for (const Field& field : kFields) text += fmt::format("{} {}\n", field.name, this->*field.value);
  return text;
}

Result<TuningTable> TuningTable::parse(std::string_view text) {
  TuningTable table;
  std::string_view line;
  if (!take_line(&text, &line) || line != kTitle) {
    return wrong(fmt::format("the first line is not '{}'", kTitle));
  }
  for (const Field& field : kFields) {
    if (!take_line(&text, &line)) return wrong(fmt::format("{} is missing", field.name));
    const std::string_view name = line.substr(0, line.find(' '));
    if (name != field.name) {
      return wrong(fmt::format("expected {}, not '{}'", field.name, printable(name, 80)));
    }
    const char* end = line.data() + line.size();
    int64_t& value = table.*field.value;
    const char* begin = line.data() + std::min(line.size(), name.size() + 1);
    const auto [parsed, error] = std::from_chars(begin, end, value);
    if (error != std::errc() || parsed != end || value < field.least || value > field.most) {
      return wrong(fmt::format("{} must be a whole number from {} to {}", field.name, field.least,
                               field.most));
    }
  }
  if (!text.empty()) return wrong("more lines than there are numbers");
  return table;
}

uint32_t TuningTable::hash() const { return fnv1a_32(serialize()); }

}  // namespace ciuic::tuner
