// SPDX-License-Identifier: Apache-2.0
// layout.h: which host each rank of a group is on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ciuic/status.h"

namespace ciuic::plan {

class Layout {
 public:
  // host_of_rank[r] is any number that ranks of one host share; hosts are renumbered in the order
  // of their lowest rank.
  explicit Layout(std::vector<int> host_of_rank);

  static Layout one_host(int size);

  // "3+2": three ranks on host 0, two on host 1. "4x2": four hosts of two ranks. "5": one host.
  static Result<Layout> parse(std::string_view text);

  int size() const { return static_cast<int>(host_of_.size()); }
  int hosts() const { return static_cast<int>(ranks_on_.size()); }
  int host_of(int rank) const { return host_of_[rank]; }
  int local_index(int rank) const { return local_index_[rank]; }                // within its host
  const std::vector<int>& ranks_on(int host) const { return ranks_on_[host]; }  // ascending
  bool same_host(int a, int b) const { return host_of_[a] == host_of_[b]; }
  int smallest_host() const;  // ranks on the host with the fewest
  int largest_host() const;
  std::string text() const;  // as parse() reads it, where hosts hold consecutive ranks

  bool operator==(const Layout& other) const { return host_of_ == other.host_of_; }

 private:
  std::vector<int> host_of_;
  std::vector<int> local_index_;
  std::vector<std::vector<int>> ranks_on_;
};

}  // namespace ciuic::plan
