// SPDX-License-Identifier: Apache-2.0
// layout.cc: numbers the hosts, reads and writes layouts as text.

#include "plan/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/assert.h"
#include "base/printable.h"

namespace ciuic::plan {

// More ranks than any group has; keeps a mistyped text from filling the memory.
static constexpr int kMaxRanks = 1 << 16;

Layout::Layout(std::vector<int> host_of_rank) : host_of_(std::move(host_of_rank)) {
  std::map<int, int> number_of;
  for (int& host : host_of_) {
    const auto found = number_of.try_emplace(host, static_cast<int>(number_of.size())).first;
    host = found->second;
  }
  ranks_on_.resize(number_of.size());
  local_index_.reserve(host_of_.size());
  for (int rank = 0; rank < size(); ++rank) {
    std::vector<int>& neighbours = ranks_on_[host_of_[rank]];
    local_index_.push_back(static_cast<int>(neighbours.size()));
    neighbours.push_back(rank);
  }
}

Layout Layout::one_host(int size) {
  CIUIC_ASSERT(size >= 1);
  return Layout(std::vector<int>(size, 0));
}

// Takes a whole decimal number in [low, high] off the front of `text`.
static bool take_number(std::string_view* text, int low, int high, int* number) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc() || *number < low || *number > high) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}

// "0,1,0": the host of each rank. False where it is no such list.
static bool parse_list(std::string_view text, std::vector<int>* hosts) {
  for (;;) {
    int host = 0;
    if (!take_number(&text, 0, kMaxRanks, &host)) return false;
    hosts->push_back(host);
    if (text.empty()) return true;
    if (text.front() != ',' || hosts->size() >= kMaxRanks) return false;
    text.remove_prefix(1);
  }
}

// "3+2", "4x2", "4x2+1": hosts with consecutive ranks.
static bool parse_sum(std::string_view text, std::vector<int>* hosts) {
  for (int next_host = 0;;) {
    int ranks = 0;
    int copies = 1;
    if (!take_number(&text, 1, kMaxRanks, &ranks)) return false;
    if (!text.empty() && text.front() == 'x') {
      text.remove_prefix(1);
      copies = ranks;
      if (!take_number(&text, 1, kMaxRanks, &ranks)) return false;
    }
    if (static_cast<int64_t>(copies) * ranks + static_cast<int64_t>(hosts->size()) > kMaxRanks) {
      return false;
    }
    for (int copy = 0; copy < copies; ++copy) hosts->insert(hosts->end(), ranks, next_host++);
    if (text.empty()) return true;
    if (text.front() != '+') return false;
    text.remove_prefix(1);
  }
}

Result<Layout> Layout::parse(std::string_view text) {
  std::vector<int> hosts;
  const bool list = text.find(',') != std::string_view::npos;
  if (list ? parse_list(text, &hosts) : parse_sum(text, &hosts)) return Layout(std::move(hosts));
  return Status(StatusCode::kInvalidArgument,
                fmt::format("layout '{}' is not understood: write 5 (one host of five ranks), "
                            "4x2 (four hosts of two), 3+2, or the host of each rank, 0,1,0,1",
                            printable(text, 80)));
}

int Layout::smallest_host() const {
  size_t smallest = host_of_.size();
  for (const std::vector<int>& ranks : ranks_on_) smallest = std::min(smallest, ranks.size());
  return static_cast<int>(smallest);
}

int Layout::largest_host() const {
  size_t largest = 0;
  for (const std::vector<int>& ranks : ranks_on_) largest = std::max(largest, ranks.size());
  return static_cast<int>(largest);
}

std::string Layout::text() const {
  const bool consecutive = std::is_sorted(host_of_.begin(), host_of_.end());
  if (!consecutive) return fmt::format("{}", fmt::join(host_of_, ","));
  if (hosts() <= 1) return fmt::format("{}", size());
  if (smallest_host() * hosts() == size()) return fmt::format("{}x{}", hosts(), smallest_host());
  std::string text;
  for (const std::vector<int>& ranks : ranks_on_) {
    if (!text.empty()) text += '+';
    text += fmt::format("{}", ranks.size());
  }
  return text;
}

}  // namespace ciuic::plan
