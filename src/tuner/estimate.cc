// SPDX-License-Identifier: Apache-2.0
// estimate.cc: formulas of latencies, messages and bytes.

#include "tuner/estimate.h"

#include <algorithm>
#include <bit>

namespace ciuic::tuner {

using plan::Algorithm;
using plan::Layout;
using plan::Operation;

namespace {

// So that products of bytes, ranks and nanoseconds stay in 64 bits.
constexpr int64_t kMostBytes = int64_t{1} << 44;

int64_t rounds_of(int64_t size) {  // ceil(log2(size))
  return std::bit_width(static_cast<uint64_t>(std::max<int64_t>(size, 1) - 1));
}

class Estimate {
 public:
  Estimate(const Call& call, const Layout& layout, const TuningTable& table)
      : table_(table),
        ranks_(layout.size()),
        hosts_(layout.hosts()),
        most_(layout.largest_host()),
        fewest_(layout.smallest_host()),
        flat_(hosts_ == ranks_),
        bytes_(
            std::min(call.count * static_cast<int64_t>(size_of(call.dtype)), kMostBytes / ranks_)),
        chunk_(std::min(bytes_, flat_ ? table.tcp_chunk_bytes : table.shm_chunk_bytes)) {}

  int64_t of(Operation operation, Algorithm algorithm) const {
    switch (operation) {
      case Operation::kAllReduce: return all_reduce(algorithm);
      case Operation::kReduce: return reduce(algorithm);
      case Operation::kBroadcast: return broadcast(algorithm);
      case Operation::kAllGather: return all_gather(algorithm);
      case Operation::kReduceScatter: return reduce_scatter(algorithm);
      case Operation::kAllToAll: return all_to_all(algorithm);
      case Operation::kGather:
      case Operation::kScatter: return gather(algorithm);
      default: return 0;
    }
  }

 private:
  int64_t wire(int64_t bytes) const { return bytes * 1000 / table_.tcp_mb_per_s; }
  int64_t copied(int64_t bytes) const { return bytes * 1000 / table_.copy_mb_per_s; }
  int64_t shown(int64_t bytes) const { return bytes * 1000 / table_.shm_mb_per_s; }
  int64_t folded(int64_t bytes) const { return bytes * 1000 / table_.reduce_mb_per_s; }
  int64_t message() const { return table_.tcp_message_ns + table_.step_ns; }

  // One message without bytes, from one end to the other.
  int64_t hop() const { return table_.tcp_latency_ns + 2 * message(); }

  // `hops` of a ring, in each of which a block moves on: its chunks follow each other, or wait for
  // those of the hop before.
  int64_t ring(int64_t hops, int64_t block, int64_t chunk_work) const {
    return hops * std::max(wire(block), hop() + wire(std::min(block, chunk_)) + chunk_work);
  }

  // What all hosts' contributions, or the result, cost inside a host besides.
  int64_t inside(int64_t bytes) const {
    if (flat_) return 0;
    return 2 * table_.shm_latency_ns + shown(bytes) + copied(bytes) +
           most_ * 2 * (table_.step_ns + copied(bytes) / 16);
  }

  // Down or up a tree in which the root has `children`; each gets all of the buffer.
  int64_t tree(int64_t depth, int64_t children) const {
    return depth * (table_.tcp_latency_ns + message()) + children * (message() + wire(bytes_)) +
           depth * copied(chunk_);
  }
  int64_t binomial() const {
    return tree(std::bit_width(static_cast<uint64_t>(hosts_)) - 1, rounds_of(hosts_));
  }
  int64_t chain() const {
    return (hosts_ - 1) * (hop() + wire(chunk_) + folded(2 * chunk_)) + wire(bytes_ - chunk_);
  }

  int64_t all_reduce(Algorithm algorithm) const {
    const int64_t rounds = rounds_of(hosts_);
    const bool power = std::has_single_bit(static_cast<uint64_t>(hosts_));
    const int64_t block = bytes_ / hosts_;
    switch (algorithm) {
      case Algorithm::kRecursiveDoubling:
      case Algorithm::kTwoLevel:
      case Algorithm::kTwoLevelSharded: {
        const int64_t exchanges = power ? rounds : rounds + 1;
        const int64_t shards = algorithm == Algorithm::kTwoLevelSharded ? fewest_ : 1;
        return exchanges * (hop() + wire(bytes_) + folded(2 * chunk_) / shards) +
               copied(bytes_) / shards + folded(most_ * bytes_) / shards + inside(bytes_) +
               shards * 4 * table_.step_ns;
      }
      case Algorithm::kRecursiveHalving: {
        const int64_t pairing = power ? 0 : 2 * (hop() + wire(bytes_)) + folded(2 * bytes_);
        return pairing + 2 * (std::bit_width(static_cast<uint64_t>(hosts_)) - 1) * hop() +
               2 * wire(bytes_ - block) + folded(2 * bytes_) + copied(bytes_);
      }
      default:  // rings
        return 2 * ring(hosts_ - 1, block, folded(2 * std::min(block, chunk_)) / fewest_) +
               (flat_ ? 0 : folded(most_ * bytes_) / fewest_) + inside(bytes_);
    }
  }

  int64_t reduce(Algorithm algorithm) const {
    const int64_t within = flat_ ? 0 : folded(most_ * chunk_) + inside(chunk_);
    const int64_t block = bytes_ / hosts_;
    switch (algorithm) {
      case Algorithm::kDirect:
        return table_.tcp_latency_ns + hosts_ * message() + (hosts_ - 1) * wire(bytes_) +
               folded(hosts_ * chunk_);
      case Algorithm::kTwoShot:
        return 2 * hop() +
               std::max(3 * (hosts_ - 2) * message(),
                        2 * (hosts_ - 2) * message() + 2 * wire(bytes_ - block)) +
               folded(hosts_ * std::min(block, chunk_));
      case Algorithm::kChain: return chain() + within;
      default: return binomial() + within;
    }
  }

  int64_t broadcast(Algorithm algorithm) const {
    const int64_t within = inside(chunk_);
    switch (algorithm) {
      case Algorithm::kKnomial: {
        int64_t children = 0;
        for (int64_t unit = 1; unit < hosts_; unit *= 4) {
          children += std::min<int64_t>(3, (hosts_ - 1) / unit);
        }
        int64_t depth = 0;
        for (int64_t least = 1; least < hosts_; least = 4 * least + 1) ++depth;
        return tree(depth, children) + within;
      }
      case Algorithm::kChain: return chain() + within;
      case Algorithm::kScatterAllGather:
        return hop() + hosts_ * message() + wire(bytes_) +
               ring(hosts_ - 2, bytes_ / std::max<int64_t>(1, hosts_ - 1), 0) + within;
      default: return binomial() + within;
    }
  }

  int64_t all_gather(Algorithm algorithm) const {
    const int64_t others = wire((ranks_ - most_) * most_ * bytes_);  // through a host's port
    switch (algorithm) {
      case Algorithm::kDirect: return hop() + 2 * (ranks_ - 2) * message() + others;
      case Algorithm::kBruck:
        return rounds_of(ranks_) * hop() + others + 3 * copied(ranks_ * bytes_);
      case Algorithm::kRecursiveDoubling: {
        const bool aligned = std::has_single_bit(static_cast<uint64_t>(fewest_));
        const int64_t rounds = aligned && fewest_ == most_ ? rounds_of(hosts_) : rounds_of(ranks_);
        return rounds * hop() + others + copied(ranks_ * bytes_);
      }
      case Algorithm::kRing: return ring(ranks_ - 1, bytes_, copied(chunk_));
      default: {                                               // two levels
        const int64_t each = (most_ + fewest_ - 1) / fewest_;  // blocks that a ring carries a hop
        const int64_t step = 2 * each * message() - 2 * message() + hop();
        const int64_t a_hop = std::max(wire(most_ * bytes_), step + wire(most_ * chunk_));
        return (hosts_ - 1) * a_hop + inside(bytes_) +
               ranks_ * (2 * table_.step_ns + copied(chunk_));
      }
    }
  }

  int64_t reduce_scatter(Algorithm algorithm) const {
    const int64_t all = ranks_ * bytes_;
    switch (algorithm) {
      case Algorithm::kDirect:
        return hop() + 2 * (ranks_ - 2) * message() + wire(most_ * (all - most_ * bytes_)) +
               folded(ranks_ * chunk_);
      case Algorithm::kRecursiveHalving: {
        const bool power = std::has_single_bit(static_cast<uint64_t>(ranks_));
        const int64_t pairing = 2 * hop() + wire(3 * all / 2) + folded(2 * all);
        return (power ? 0 : pairing) + (std::bit_width(static_cast<uint64_t>(ranks_)) - 1) * hop() +
               wire(all - bytes_) + folded(2 * all);
      }
      case Algorithm::kRing: return ring(ranks_ - 1, bytes_, folded(2 * chunk_));
      default: {                                                           // two levels
        const int64_t handled = (ranks_ - most_ + fewest_ - 1) / fewest_;  // sums for other hosts
        return hop() + (handled + hosts_ - 2) * message() + wire(all - most_ * bytes_) +
               2 * table_.shm_latency_ns + shown(all) + folded((handled + 1) * most_ * bytes_) +
               2 * ranks_ * table_.step_ns;
      }
    }
  }

  int64_t all_to_all(Algorithm algorithm) const {
    const int64_t others = wire((ranks_ - most_) * most_ * bytes_);
    const int64_t rounds = rounds_of(ranks_);
    switch (algorithm) {
      case Algorithm::kBruck:
        return rounds * hop() + wire(most_ * rounds * ranks_ / 2 * bytes_) +
               (rounds + 2) * ranks_ * (table_.step_ns / 2 + copied(bytes_));
      case Algorithm::kTwoLevel: {
        const int64_t messages = (hosts_ + fewest_ - 2) / fewest_;  // that a rank handles
        return hop() + 2 * (messages - 1) * message() + others + 3 * table_.shm_latency_ns +
               3 * ranks_ * table_.step_ns + 4 * (ranks_ - fewest_) * copied(bytes_);
      }
      default: return hop() + 2 * (ranks_ - fewest_ - 1) * message() + others;
    }
  }

  // And scatter, the other way.
  int64_t gather(Algorithm algorithm) const {
    const int64_t others = wire((ranks_ - fewest_) * bytes_);
    switch (algorithm) {
      case Algorithm::kBinomial:
        return rounds_of(ranks_) * hop() + others + wire(ranks_ / 4 * bytes_) +
               copied(ranks_ * bytes_);
      case Algorithm::kTwoLevel:
        return hop() + (hosts_ - 2) * message() + others + wire(most_ * bytes_) +
               2 * table_.shm_latency_ns + most_ * (3 * table_.step_ns + 2 * copied(bytes_));
      default: return hop() + (ranks_ - fewest_ - 1) * message() + others;
    }
  }

  const TuningTable& table_;
  const int64_t ranks_;
  const int64_t hosts_;
  const int64_t most_;    // ranks on the host that has most
  const int64_t fewest_;  // and on the one that has fewest
  const bool flat_;       // each rank has a host of its own
  const int64_t bytes_;   // of the plans' unit
  const int64_t chunk_;
};

}  // namespace

// Those that there are formulas for.
static std::vector<Algorithm> known(Operation operation, const Layout& layout) {
  using enum Algorithm;
  const bool flat = layout.hosts() == layout.size();
  std::vector<Algorithm> list;
  switch (operation) {
    case Operation::kAllReduce:
      list = flat ? std::vector{kRecursiveDoubling, kRecursiveHalving, kRing}
                  : std::vector{kTwoLevel, kTwoLevelSharded, kTwoLevelRing};
      break;
    case Operation::kReduce:
      list =
          flat ? std::vector{kBinomial, kDirect, kTwoShot, kChain} : std::vector{kTwoLevel, kChain};
      break;
    case Operation::kBroadcast:
      list = {flat ? kBinomial : kTwoLevel, kKnomial, kChain, kScatterAllGather};
      break;
    case Operation::kAllGather:
      list = flat ? std::vector{kDirect, kRecursiveDoubling, kBruck, kRing}
                  : std::vector{kTwoLevel, kRecursiveDoubling, kBruck};
      break;
    case Operation::kBarrier: list = {flat ? kDissemination : kTwoLevel}; break;
    case Operation::kReduceScatter:
      list =
          flat ? std::vector{kDirect, kRecursiveHalving, kRing} : std::vector{kTwoLevel, kDirect};
      break;
    case Operation::kAllToAll: list = {kDirect, flat ? kBruck : kTwoLevel}; break;
    case Operation::kGather:
    case Operation::kScatter: list = {kDirect, flat ? kBinomial : kTwoLevel}; break;
    default: break;
  }
  return list;
}

std::vector<Algorithm> candidates(const Call& call, const Layout& layout,
                                  const TuningTable& table) {
  const int64_t bytes = call.count * static_cast<int64_t>(size_of(call.dtype));
  std::vector<Algorithm> list = known(call.operation, layout);
  std::erase_if(list, [&](Algorithm algorithm) {
    if (!fits(call.operation, algorithm, layout)) return true;
    if (call.uneven && !plan::takes_uneven(call.operation, algorithm)) return true;
    const int64_t blocks = plan::scratch_blocks(call.operation, algorithm, layout);
    const bool is_much = blocks > 0 && bytes > table.scratch_bytes / blocks;
    return is_much && (call.uneven || !plan::works_in_parts(call.operation, algorithm));
  });
  return list;
}

int64_t estimated_ns(const Call& call, Algorithm algorithm, const Layout& layout,
                     const TuningTable& table) {
  return Estimate(call, layout, table).of(call.operation, algorithm);
}

}  // namespace ciuic::tuner
