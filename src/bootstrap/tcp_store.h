// SPDX-License-Identifier: Apache-2.0
// tcp_store.h: a store that one process serves to the others of a job, over connections that have
// proven the job's secret.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/port_range.h"
#include "bootstrap/channel.h"
#include "bootstrap/erasable.h"
#include "ciuic/store.h"

namespace ciuic::bootstrap {

// Serves from a thread of its own until it is destroyed. Keys, values, connections and what they
// hold together are bounded; a client that is slow, silent or nonsensical delays nobody else.
class TcpStoreServer {
 public:
  // `bind`: "127.0.0.1" for one host; port 0: any of `ports`. kResource: port in use, with its
  // holder, or all of them. kInvalidArgument: fewer than 16 bytes of secret.
  static Result<std::unique_ptr<TcpStoreServer>> start(const posix::Address& bind,
                                                       const std::string& secret,
                                                       PortRange ports = {});
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  const posix::Address& address() const;
  uint16_t port() const { return address().port; }

  // Connections that had to go because they did not prove the secret. Any thread.
  uint64_t strangers() const;

 private:
  struct State;
  explicit TcpStoreServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class TcpStore final : public Store, public Erasable {
 public:
  // Waits for a server to come up, until the deadline. kPermission: it knows another secret. With
  // `tls` what is asked and answered goes by TLS; the server does as each client wants.
  static Result<std::unique_ptr<TcpStore>> connect(const posix::Address& host_and_port,
                                                   const std::string& secret, TimeNs deadline,
                                                   bool tls = false);

  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, int64_t timeout_ms) override;
  Result<int64_t> add(const std::string& key, int64_t amount) override;
  std::string name() const override { return name_; }
  bool is_private() const override { return true; }
  void erase(const std::string& key) override;

  // Where the server is, as a numeric address.
  const posix::Address& server() const { return server_; }

 private:
  TcpStore(std::string name, posix::Address server, Channel channel)
      : name_(std::move(name)), server_(std::move(server)), channel_(std::move(channel)) {}
  Result<std::string> ask(const std::string& request, int64_t timeout_ms);

  std::string name_;
  posix::Address server_;
  Channel channel_;
  Status broken_;  // an answer that did not come in time would be taken for the next one's
};

}  // namespace ciuic::bootstrap
