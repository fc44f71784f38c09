// SPDX-License-Identifier: Apache-2.0
// hosts.cc: the ranks that stand for their hosts in algorithms of two levels.

#include "plan/hosts.h"

namespace ciuic::plan {

Members host_members(const Layout& layout, int rank, int index) {
  Members members;
  for (int host = 0; host < layout.hosts(); ++host) {
    members.ranks.push_back(layout.ranks_on(host)[index]);
    members.raw.push_back(layout.ranks_on(host).size() == 1);
  }
  members.place = layout.host_of(rank);
  return members;
}

Members host_leaders(const Layout& layout, int rank, int root) {
  Members members = host_members(layout, rank, /*index=*/0);
  members.ranks[layout.host_of(root)] = root;
  return members;
}

}  // namespace ciuic::plan
