// SPDX-License-Identifier: Apache-2.0
// tcp_link_bench.cc: what TLS costs: bytes per second and round trips over loopback, with it and
// without.
//
// To compare them, let them take turns: --benchmark_enable_random_interleaving=true and
// --benchmark_repetitions=9.

#include <benchmark/benchmark.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "drivers/posix/poller.h"
#include "drivers/posix/socket.h"
#include "transport/tcp/tcp_acceptor.h"
#include "transport/tcp/tcp_link.h"

namespace ciuic::transport::tcp {
namespace {

constexpr size_t kChunkBytes = 64 * 1024;
constexpr int kChunks = 256;  // in one iteration

// Two ranks, connected.
class Ends {
 public:
  explicit Ends(security::UseTls tls) {
    security::Identity identity{
        .job = "bench", .epoch = 1, .group = 1, .purpose = 0, .from = -1, .to = -1, .tls = tls};
    const std::string secret(32, 's');
    std::array<std::vector<posix::Address>, 2> addresses;
    std::array<std::shared_ptr<TcpAcceptor>, 2> acceptors;
    for (int rank = 0; rank < 2; ++rank) {
      pollers_[rank] = std::move(posix::Poller::create().value());
      TcpAcceptorOptions options;
      options.listeners.push_back(std::move(posix::listen_at({"127.0.0.1", 0}).value()));
      addresses[rank] = {posix::local_address(options.listeners[0].get()).value()};
      options.secret = secret;
      options.identity = identity;
      options.identity.to = rank;
      options.poller = pollers_[rank].get();
      acceptors[rank] = TcpAcceptor::create(std::move(options)).value();
    }
    for (int rank = 0; rank < 2; ++rank) {
      TcpLinkOptions options;
      options.peer = 1 - rank;
      options.peer_name = "the peer";
      options.addresses = addresses[1 - rank];
      options.secret = secret;
      options.identity = identity;
      options.identity.from = rank;
      options.acceptor = acceptors[rank];
      options.poller = pollers_[rank].get();
      links_[rank] = std::make_unique<TcpLink>(std::move(options));
    }
    while (!links_[0]->can_send(0) || !links_[1]->can_send(0)) {
      step(0);
      step(1);
    }
  }

  TcpLink& link(int rank) { return *links_[rank]; }
  void step(int rank) {
    pollers_[rank]->poll(0);
    links_[rank]->progress();
  }

  void send(int rank, const std::vector<std::byte>& payload) {
    while (!links_[rank]->can_send(payload.size())) step(rank);
    wire::Header header;
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    header.message_bytes = payload.size();
    links_[rank]->send(header, payload.data(), nullptr);
  }

  // Whether a whole message came.
  bool receive(int rank, std::vector<std::byte>* into) {
    Arrival arrival;
    if (!links_[rank]->receive(&arrival)) return false;
    if (arrival.data == nullptr && arrival.header.payload_bytes > 0) {
      links_[rank]->place(into->data());
      return false;
    }
    links_[rank]->release(arrival.token);
    return true;
  }

 private:
  std::array<std::unique_ptr<posix::Poller>, 2> pollers_;
  std::array<std::unique_ptr<TcpLink>, 2> links_;
};

// One thread sends, another receives.
void throughput(benchmark::State& state, security::UseTls tls) {
  Ends ends(tls);
  const std::vector<std::byte> payload(kChunkBytes);
  std::atomic<int64_t> received{0};
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    std::vector<std::byte> into(kChunkBytes);
    while (!stop.load(std::memory_order_relaxed)) {
      ends.step(1);
      while (ends.receive(1, &into)) received.fetch_add(1, std::memory_order_release);
    }
  });
  int64_t sent = 0;
  for (auto _ : state) {
    for (int chunk = 0; chunk < kChunks; ++chunk) ends.send(0, payload);
    sent += kChunks;
    while (received.load(std::memory_order_acquire) != sent) ends.step(0);
  }
  stop.store(true, std::memory_order_relaxed);
  reader.join();
  state.SetBytesProcessed(sent * static_cast<int64_t>(kChunkBytes));
}

// One thread plays both ends: what the processor has to do, without what waking up costs.
void round_trip(benchmark::State& state, security::UseTls tls) {
  Ends ends(tls);
  const std::vector<std::byte> payload(static_cast<size_t>(state.range(0)));
  std::vector<std::byte> into(payload.size());
  for (auto _ : state) {
    for (int rank = 0; rank < 2; ++rank) {
      ends.send(rank, payload);
      while (!ends.receive(1 - rank, &into)) {
        ends.step(rank);
        ends.step(1 - rank);
      }
    }
  }
}

// Processor time is that of both ends.
BENCHMARK_CAPTURE(throughput, plain, security::UseTls::kNo)->UseRealTime()->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(throughput, tls, security::UseTls::kYes)->UseRealTime()->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(round_trip, plain, security::UseTls::kNo)->Arg(8)->Arg(16384);
BENCHMARK_CAPTURE(round_trip, tls, security::UseTls::kYes)->Arg(8)->Arg(16384);

}  // namespace
}  // namespace ciuic::transport::tcp
