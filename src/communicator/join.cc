// SPDX-License-Identifier: Apache-2.0
// join.cc: the steps of the join, in the order in which join.h names them.

#include "communicator/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <sstream>

#include "base/log.h"
#include "bootstrap/exchange.h"
#include "ciuic/version.h"
#include "drivers/posix/limits.h"
#include "drivers/posix/socket.h"
#include "topology/interfaces.h"
#include "transport/shm/pairing.h"
#include "transport/tcp/tcp_acceptor.h"
#include "transport/tcp/tcp_link.h"
#include "wire/header.h"

namespace ciuic {

using bootstrap::Assembly;
using bootstrap::Card;
using transport::shm::LocalLinks;

namespace {

// What this rank listens at.
struct Listeners {
  std::vector<posix::UniqueFd> tcp;
  std::vector<posix::Address> addresses;
  std::vector<posix::Address> loopback;
  transport::shm::UnixListener local;  // invalid where shm is not offered
  std::string interface_name;
};

// One group while it comes together.
struct Joining {
  const CommunicatorOptions& options;
  const Config& config;
  const topology::Host& host;
  const bootstrap::GpuFacts& gpu;
  posix::Poller* poller;
  std::shared_ptr<memory::SharedPool> pool;
  Meeting meeting;
  TimeNs deadline;
  bootstrap::Listening listening;
  Listeners listeners;
  std::unique_ptr<Assembly> assembly;
  bootstrap::Reachable reachable;
  LocalLinks local;
};

}  // namespace

static bool offers_shm(const Config& config) { return config.transport != TransportChoice::kTcp; }
static bool offers_tcp(const Config& config) { return config.transport != TransportChoice::kShm; }

// The address of this host towards the store's, where that is known.
static std::string source_towards(const std::string& store) {
  const std::string tcp = "tcp://";
  if (!store.starts_with(tcp)) return "";
  Result<posix::Address> place = posix::split_host_port(store.substr(tcp.size()));
  if (!place.ok()) return "";
  auto addresses = posix::resolve(place->text, place->port);
  if (!addresses.ok() || addresses->empty()) return "";
  auto source = posix::source_address_towards(addresses->front());
  return source.ok() ? source->text : "";
}

static Status listen(Joining* joining) {
  Listeners& listeners = joining->listeners;
  auto listening =
      bootstrap::Listening::from(joining->config.advertise_address, joining->config.port_range);
  if (!listening.ok()) return listening.status();
  auto interfaces = topology::list_interfaces();
  if (!interfaces.ok()) return interfaces.status();
  auto picked =
      topology::pick(*interfaces, {.ifname = joining->config.socket_ifname,
                                   .source = source_towards(joining->meeting.store->name())});
  if (!picked.ok()) return picked.status();
  for (const auto& rejected : picked->rejected) {
    log_info("not using {}: {}", rejected.what, rejected.why);
  }
  listeners.interface_name = picked->interface_name;
  bootstrap::prefer_own(&*listening, &picked->addresses);
  CIUIC_RETURN_IF_ERROR(bootstrap::listen_at_all(picked->addresses, *listening, &listeners.tcp,
                                                 &listeners.addresses));
  CIUIC_RETURN_IF_ERROR(
      bootstrap::listen_at_all(picked->loopback, *listening, &listeners.tcp, &listeners.loopback));
  bootstrap::advertise(*listening, &listeners.addresses);
  joining->listening = std::move(*listening);
  if (!offers_shm(joining->config)) return {};
  auto local = transport::shm::listen_abstract();
  if (!local.ok()) return local.status();
  listeners.local = std::move(*local);
  return {};
}

static Card card_of(const Joining& joining) {
  Card card;
  card.rank = joining.meeting.rank;
  card.size = joining.meeting.size;
  card.pid = joining.host.pid;
  card.start_ticks = joining.host.start_ticks;
  card.host_name = joining.host.name;
  card.machine_id = joining.host.machine_id;
  card.host_id = joining.host.host_id;
  card.cores = joining.host.cores;
  card.unix_name = joining.listeners.local.name;
  card.addresses = joining.listeners.addresses;
  card.loopback = joining.listeners.loopback;
  card.transports = (offers_shm(joining.config) ? bootstrap::kOffersShm : 0) |
                    (offers_tcp(joining.config) ? bootstrap::kOffersTcp : 0);
  card.library_version = version();
  card.wire_version = wire::kVersion;
  card.gpu = joining.gpu;
  card.agreed = {{"backend", joining.options.backend},
                 {"buffer_size", std::to_string(joining.options.buffer_size)},
                 {"CIUIC_TRANSPORT", name_of(joining.config.transport)}};
  return card;
}

static Status exchange(Joining* joining) {
  bootstrap::ExchangeOptions options;
  options.group_name = joining->options.group_name;
  options.deadline = joining->deadline;
  options.shared_secret = joining->config.secret;
  options.tls = joining->config.tls;
  options.tuning = tuner::TuningTable().serialize();
  options.listening = joining->listening;
  auto assembly =
      bootstrap::exchange_cards(joining->meeting.store.get(), card_of(*joining), options);
  if (!assembly.ok()) return assembly.status();
  joining->assembly = std::move(*assembly);
  return {};
}

// The ranks of this rank's host that may share memory with it, and itself. Where there are more
// than a segment has room for, they are cut into even blocks, with TCP between them.
static std::vector<int> sharing_memory(const std::vector<Card>& cards, const std::string& host_id,
                                       int rank) {
  std::vector<int> local;
  for (const Card& card : cards) {
    if (card.host_id == host_id) local.push_back(card.rank);
  }
  const size_t most = transport::shm::kMaxLocalRanks;
  const size_t blocks = (local.size() + most - 1) / most;
  const auto place =
      static_cast<size_t>(std::find(local.begin(), local.end(), rank) - local.begin());
  const size_t block = place * blocks / local.size();
  const auto first = [&](size_t number) {
    return static_cast<int64_t>((number * local.size() + blocks - 1) / blocks);
  };
  return {local.begin() + first(block), local.begin() + first(block + 1)};
}

// A rank that dies while others pair ends the join for all.
class JoinWatch final : public transport::shm::PairingWatch {
 public:
  explicit JoinWatch(Assembly* assembly) : assembly_(assembly) {}
  void add_to(std::vector<pollfd>* fds) override { assembly_->watch(fds); }
  Status look(std::span<const pollfd> entries) override { return assembly_->look(entries); }

 private:
  Assembly* assembly_;
};

static Result<LocalLinks> pair(const Joining& joining) {
  const bootstrap::Roll& roll = joining.assembly->roll();
  const Card& mine = roll.cards[joining.meeting.rank];
  transport::shm::PairingOptions options;
  options.rank = joining.meeting.rank;
  options.listener = joining.listeners.local.fd.get();
  options.secret = roll.secret;
  options.job = roll.job;
  options.epoch = roll.epoch;
  options.group = roll.group;
  options.deadline = joining.deadline;
  options.poller = joining.poller;
  options.pool = joining.pool;
  for (int rank : sharing_memory(roll.cards, mine.host_id, mine.rank)) {
    if (rank == mine.rank) continue;
    options.peers.push_back({rank, roll.cards[static_cast<size_t>(rank)].unix_name});
  }
  if (!offers_shm(joining.config) || options.peers.empty()) return LocalLinks();
  JoinWatch watch(joining.assembly.get());
  options.watch = &watch;
  return transport::shm::connect_local_peers(options);
}

// One byte a rank, '1' where this one shares memory with it.
static std::string paired_ranks(const LocalLinks& local, int size) {
  std::string text(static_cast<size_t>(size), '0');
  for (const auto& link : local.links) {
    if (link.link != nullptr) text[static_cast<size_t>(link.rank)] = '1';
  }
  return text;
}

// Hosts are the sets of ranks that pairs connect; every rank sees the same pairs.
static plan::Layout layout_of(const std::vector<std::string>& paired) {
  std::vector<int> host(paired.size());
  std::iota(host.begin(), host.end(), 0);
  for (size_t a = 0; a < paired.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      if (paired[a].size() != paired.size() || paired[a][b] != '1') continue;
      const int from = host[a];
      const int to = host[b];
      for (int& each : host) {
        if (each == from) each = to;
      }
    }
  }
  return plan::Layout(host);
}

static Status no_transport(const Joining& joining, const plan::Layout& layout) {
  if (joining.config.transport != TransportChoice::kShm) return {};
  for (int rank = 0; rank < layout.size(); ++rank) {
    if (layout.same_host(rank, 0)) continue;
    return {
        StatusCode::kUnavailable,
        fmt::format("CIUIC_TRANSPORT=shm, but {} and {} share no memory (only ranks of one host, "
                    "and {} of them at most, do); unset it to use TCP between them",
                    joining.assembly->roll().cards[0].who(),
                    joining.assembly->roll().cards[static_cast<size_t>(rank)].who(),
                    static_cast<int>(transport::shm::kMaxLocalRanks))};
  }
  return {};
}

// The cores of this host's ranks together: those that any of them may run on, or as many as their
// control group allows. A launcher may have given each rank a core of its own.
static Result<int> count_local_cores(Joining* joining, const plan::Layout& layout) {
  std::string mine = std::to_string(joining->host.quota);
  for (int cpu : joining->host.cpus) mine += " " + std::to_string(cpu);
  auto all = joining->assembly->gather(mine, joining->deadline);
  if (!all.ok()) return all.status();
  std::set<int> cpus;
  int quota = 0;
  for (int rank : layout.ranks_on(layout.host_of(joining->meeting.rank))) {
    std::istringstream numbers((*all)[static_cast<size_t>(rank)]);
    numbers >> quota;
    for (int cpu = 0; numbers >> cpu;) cpus.insert(cpu);
  }
  const int cores = std::max(1, static_cast<int>(cpus.size()));
  return quota > 0 ? std::min(quota, cores) : cores;
}

// Once the group is there, its own numbers are the only ones.
static Card named_anew(Card card) {
  card.former_rank = -1;
  return card;
}

static Status make_tcp_links(Joining* joining, Joined* joined) {
  const bootstrap::Roll& roll = joining->assembly->roll();
  const int rank = joining->meeting.rank;
  const security::Identity mine{.job = roll.job,
                                .epoch = roll.epoch,
                                .group = roll.group,
                                .purpose = 0,
                                .from = -1,
                                .to = rank,
                                .tls = roll.tls ? security::UseTls::kYes : security::UseTls::kNo};
  std::shared_ptr<transport::tcp::TcpAcceptor> acceptor;
  for (const Card& card : roll.cards) {
    std::unique_ptr<transport::Link>& link = joined->links[static_cast<size_t>(card.rank)];
    if (card.rank == rank || link != nullptr) continue;
    if (acceptor == nullptr) {
      auto made = transport::tcp::TcpAcceptor::create(
          {std::move(joining->listeners.tcp), roll.secret, mine, joining->poller});
      if (!made.ok()) return made.status();
      acceptor = std::move(*made);
    }
    transport::tcp::TcpLinkOptions options;
    options.peer = card.rank;
    options.peer_name = named_anew(card).who();
    options.addresses = joining->reachable.addresses(rank, card.rank);
    options.secret = roll.secret;
    options.identity = mine;
    options.identity.from = rank;
    options.identity.to = card.rank;
    options.acceptor = acceptor;
    options.poller = joining->poller;
    options.connect_timeout_ms = joining->options.timeout_ms;
    link = std::make_unique<transport::tcp::TcpLink>(std::move(options));
  }
  return {};
}

// Steps 5 and 6: who shares memory with whom, agreed on by all; then the links.
static Status make_links(Joining* joining, Joined* joined) {
  Assembly& assembly = *joining->assembly;
  Result<LocalLinks> local = pair(*joining);
  if (local.ok()) joining->local = std::move(*local);
  const int size = joining->meeting.size;
  auto paired = assembly.gather(local.ok() ? Result<std::string>(paired_ranks(joining->local, size))
                                           : Result<std::string>(local.status()),
                                joining->deadline);
  if (!paired.ok()) return paired.status();
  joined->layout = layout_of(*paired);
  CIUIC_RETURN_IF_ERROR(no_transport(*joining, joined->layout));
  Result<int> local_cores = count_local_cores(joining, joined->layout);
  if (!local_cores.ok()) return local_cores.status();
  joined->local_cores = *local_cores;
  joined->links.resize(static_cast<size_t>(size));
  for (auto& link : joining->local.links) {
    if (link.link == nullptr) {
      joined->reasons[link.rank] = link.reason.message();
      log_warn("rank {} has this host's id but shares no memory with it, so TCP is used: {}",
               link.rank, link.reason.message());
    }
    joined->links[static_cast<size_t>(link.rank)] = std::move(link.link);
  }
  joined->segment = joining->local.segment;
  return make_tcp_links(joining, joined);
}

// A connection for each rank at rank 0, and what else a join opens. Shared memory takes two more a
// peer, which cannot be counted before it is known who is there; running out of them names the
// limit.
static Status check_descriptors(const Joining& joining) {
  const auto size = static_cast<size_t>(joining.meeting.size);
  const size_t certain = (joining.meeting.rank == 0 ? size : 1) + 16;
  const size_t room = posix::room_for_descriptors(4 * size + 64);
  if (room >= certain) return {};
  return {
      StatusCode::kResource,
      fmt::format("joining {} ranks takes {} descriptors on rank {}, and there is room for {}: {}",
                  size, certain, joining.meeting.rank, room, posix::descriptor_advice())};
}

static Status join_group(Joining* joining, Joined* joined) {
  CIUIC_RETURN_IF_ERROR(check_descriptors(*joining));
  CIUIC_RETURN_IF_ERROR(listen(joining));
  CIUIC_RETURN_IF_ERROR(exchange(joining));
  const bootstrap::Roll& roll = joining->assembly->roll();
  Result<ChosenBackend> backend = choose_backend(joining->options.backend, roll.cards);
  if (!backend.ok()) return backend.status();
  joined->backend = std::move(*backend);
  auto table = tuner::TuningTable::parse(roll.tuning);
  if (!table.ok()) return table.status();
  joined->table = *table;
  joined->epoch = roll.epoch;
  joined->group = roll.group;
  joined->job = roll.job;
  joined->tls = roll.tls;
  auto reachable = bootstrap::prove_addresses(joining->assembly.get(), joining->listeners.tcp,
                                              joining->deadline);
  if (!reachable.ok()) return reachable.status();
  joining->reachable = std::move(*reachable);
  joined->group_at_join = std::make_unique<OldGroup>();
  joined->group_at_join->rank = joining->meeting.rank;
  for (const posix::UniqueFd& listener : joining->listeners.tcp) {
    auto copy = posix::copy_socket(listener.get());
    if (!copy.ok()) return copy.status();
    joined->group_at_join->listeners.push_back(std::move(*copy));
  }
  CIUIC_RETURN_IF_ERROR(make_links(joining, joined));
  joined->group_at_join->roll = roll;
  for (Card& card : joined->group_at_join->roll.cards) card = named_anew(std::move(card));
  joined->group_at_join->reachable = joining->reachable;
  joined->strangers =
      joining->assembly->strangers() + static_cast<uint64_t>(joining->local.strangers);
  joined->channels = joining->assembly->take_channels();
  return {};
}

// What to do where ranks did not come.
static Status with_advice(const Status& status, const CommunicatorOptions& options,
                          const std::string& store_name) {
  if (status.code() != StatusCode::kTimeout) return status;
  return {
      status.code(),
      fmt::format("{}. Look whether all ranks were started, with this store ({}) and group name "
                  "(\"{}\"); timeout_ms (timeout_s in Python) allows more than these {} ms.",
                  status.message(), store_name, options.group_name, options.timeout_ms)};
}

Result<Joined> join(const CommunicatorOptions& options, const Config& config,
                    const topology::Host& host, const bootstrap::GpuFacts& gpu,
                    posix::Poller* poller, std::shared_ptr<memory::SharedPool> pool) {
  const TimeNs start = now_ns();
  if (config.transport == TransportChoice::kRdma) {
    return Status(StatusCode::kUnavailable,
                  "CIUIC_TRANSPORT=rdma: this version has no RDMA transport; it has shm and tcp");
  }
  const TimeNs deadline = deadline_after(start, options.timeout_ms);
  Result<Meeting> meeting = find_meeting(options, config, deadline);
  if (!meeting.ok()) return meeting.status();
  Joined joined;
  joined.rank = meeting->rank;
  if (meeting->size == 1) {
    joined.links.resize(1);
    Card alone;
    alone.rank = 0;
    alone.pid = host.pid;
    alone.host_name = host.name;
    alone.gpu = gpu;
    Result<ChosenBackend> backend = choose_backend(options.backend, {&alone, 1});
    if (!backend.ok()) return backend.status();
    joined.backend = std::move(*backend);
  } else {
    joined.store_name = meeting->store->name();
    joined.store_is_private = meeting->store->is_private();
    Joining joining{.options = options,
                    .config = config,
                    .host = host,
                    .gpu = gpu,
                    .poller = poller,
                    .pool = std::move(pool),
                    .meeting = std::move(*meeting),
                    .deadline = deadline,
                    .listening = {},
                    .listeners = {},
                    .assembly = nullptr,
                    .reachable = {},
                    .local = {}};
    const Status status = join_group(&joining, &joined);
    if (!status.ok()) return with_advice(status, options, joined.store_name);
    joined.interface_name = joining.listeners.interface_name;
  }
  joined.took_ns = now_ns() - start;
  return joined;
}

}  // namespace ciuic
