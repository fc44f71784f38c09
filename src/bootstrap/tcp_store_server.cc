// SPDX-License-Identifier: Apache-2.0
// tcp_store_server.cc: one thread, one poll(2) loop; a client waits without holding anything up.

#include <fmt/format.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <list>
#include <map>
#include <system_error>
#include <thread>

#include "bootstrap/bytes.h"
#include "bootstrap/tcp_store.h"
#include "bootstrap/tcp_store_protocol.h"
#include "drivers/posix/socket.h"
#include "drivers/posix/system_status.h"
#include "security/admission.h"

namespace ciuic::bootstrap {

static constexpr size_t kMaxProven = 8192;
static constexpr size_t kMaxUnproven = 256;  // then the oldest has to go
static constexpr int64_t kProofMs = 10'000;
static constexpr int64_t kAcceptPauseMs = 100;  // when descriptors have run out
static constexpr size_t kMaxKeys = 65'536;
static constexpr size_t kMaxStoredBytes = 64u << 20;

struct Client {
  Channel channel;
  TimeNs proof_deadline;
  std::string awaited;  // the key of a get() that waits; empty: none
  TimeNs get_deadline = kNever;
  int64_t get_ms = 0;

  bool is_proven() const { return channel.proven(); }
  bool has_said_hello() const { return !channel.peer().job.empty(); }
};

struct TcpStoreServer::State {
  posix::UniqueFd listener;
  posix::UniqueFd stop;  // an eventfd
  posix::Address address;
  std::string secret;
  std::thread thread;
  std::list<Client> clients;  // oldest first
  std::map<std::string, std::string> values;
  size_t stored_bytes = 0;
  TimeNs accept_from = 0;
  std::atomic<uint64_t> strangers{0};

  Status start_thread();
  void serve();
  void accept_waiting();
  bool make_room();
  Status progress(Client* client, short happened);
  void handle(Client* client, const std::string& frame);
  Status put(const std::string& key, const std::string& value);
  void answer_waiting(TimeNs now);
  TimeNs next_deadline() const;
};

static void answer(Client* client, StatusCode code, const std::string& text) {
  client->channel.send(ByteWriter().u8(static_cast<uint8_t>(code)).text(text).take());
}

static void answer(Client* client, const Status& status) {
  answer(client, status.code(), status.message());
}

Status TcpStoreServer::State::put(const std::string& key, const std::string& value) {
  const auto old = values.find(key);
  const size_t without = stored_bytes - (old == values.end() ? 0 : old->second.size());
  if ((old == values.end() && values.size() >= kMaxKeys) ||
      without + value.size() > kMaxStoredBytes) {
    return Status(StatusCode::kResource, "the store is full");
  }
  stored_bytes = without + value.size();
  values[key] = value;
  return {};
}

void TcpStoreServer::State::handle(Client* client, const std::string& frame) {
  ByteReader in(frame);
  const auto request = static_cast<Request>(in.u8());
  const std::string key = in.text(kMaxKeyBytes);
  const std::string value = request == Request::kSet ? in.text(kMaxValueBytes) : "";
  const bool numbered = request == Request::kGet || request == Request::kAdd;
  const auto number = static_cast<int64_t>(numbered ? in.u64() : 0);
  if (!in.complete() || request < Request::kSet || request > Request::kErase) {
    return answer(client, StatusCode::kInvalidArgument, "a request of no known form");
  }
  if (const Status status = check_entry(key, value); !status.ok()) return answer(client, status);
  switch (request) {
    case Request::kSet: return answer(client, put(key, value));
    case Request::kGet:
      client->awaited = key;
      client->get_ms = std::max<int64_t>(number, 0);
      client->get_deadline = deadline_after(now_ns(), client->get_ms);
      return;
    case Request::kAdd: {
      const auto old = values.find(key);
      Result<int64_t> sum = add_to_text(key, old == values.end() ? "" : old->second, number);
      const Status stored = sum.ok() ? put(key, std::to_string(*sum)) : sum.status();
      return stored.ok() ? answer(client, StatusCode::kOk, values[key]) : answer(client, stored);
    }
    case Request::kErase:
      if (const auto old = values.find(key); old != values.end()) {
        stored_bytes -= old->second.size();
        values.erase(old);
      }
      return answer(client, Status());
  }
}

void TcpStoreServer::State::answer_waiting(TimeNs now) {
  for (Client& client : clients) {
    if (client.awaited.empty()) continue;
    const auto found = values.find(client.awaited);
    if (found != values.end()) {
      answer(&client, StatusCode::kOk, found->second);
    } else if (now >= client.get_deadline) {
      answer(&client, StatusCode::kTimeout,
             fmt::format("no key {} within {} ms", client.awaited, client.get_ms));
    } else {
      continue;
    }
    client.awaited.clear();
    client.get_deadline = kNever;
    // A failure shows again at the next poll, which then drops the client.
    [[maybe_unused]] const Status sent = client.channel.progress();
  }
}

// An error: the client has to go.
Status TcpStoreServer::State::progress(Client* client, short happened) {
  Status status;
  if (happened != 0) status = client->channel.progress();
  std::string frame;
  // One request at a time: what a client that does not read can pile up is one answer.
  while (client->awaited.empty() && client->channel.flushed() && client->channel.receive(&frame)) {
    handle(client, frame);
    if (status.ok()) status = client->channel.progress();
  }
  return status;
}

// False: nobody can go.
bool TcpStoreServer::State::make_room() {
  const auto client = security::first_to_go(clients);
  if (client == clients.end()) return false;
  clients.erase(client);
  ++strangers;
  return true;
}

void TcpStoreServer::State::accept_waiting() {
  const size_t most = security::most_unproven(kMaxUnproven);
  for (size_t taken = 0; taken < security::accepts_at_once(most); ++taken) {
    Result<posix::UniqueFd> fd = posix::accept_from(listener.get());
    // Out of descriptors, most likely: the connection stays in the queue until one is free.
    if (!fd.ok() && make_room()) continue;
    if (!fd.ok()) accept_from = deadline_after(now_ns(), kAcceptPauseMs);
    if (!fd.ok() || !fd->valid()) return;
    if (clients.size() >= kMaxProven + kMaxUnproven) continue;
    clients.push_back(
        {Channel(std::move(*fd),
                 security::Handshake::accepting(secret, store_identity(security::UseTls::kAsPeer)),
                 kMaxStoreFrameBytes),
         deadline_after(now_ns(), kProofMs), "", kNever, 0});
    const auto unproven = std::count_if(clients.begin(), clients.end(),
                                        [](const Client& client) { return !client.is_proven(); });
    if (static_cast<size_t>(unproven) > most) make_room();
  }
}

TimeNs TcpStoreServer::State::next_deadline() const {
  TimeNs next = accept_from > now_ns() ? accept_from : kNever;
  for (const Client& client : clients) {
    next = std::min(next, client.channel.proven() ? client.get_deadline : client.proof_deadline);
  }
  return next;
}

void TcpStoreServer::State::serve() {
  while (true) {
    std::vector<pollfd> fds = {
        {stop.get(), POLLIN, 0},
        {now_ns() < accept_from ? -1 : listener.get(), POLLIN, 0},  // -1 is passed over
    };
    for (const Client& client : clients) {
      fds.push_back({client.channel.fd(), client.channel.events(), 0});
    }
    if (!wait_for_any(&fds, next_deadline()).ok()) return;
    if (fds[0].revents != 0) return;
    const TimeNs now = now_ns();
    size_t index = 2;
    for (auto client = clients.begin(); client != clients.end();) {
      const Status status = progress(&*client, fds[index++].revents);
      const bool late = !client->is_proven() && now >= client->proof_deadline;
      const bool left = status.code() == StatusCode::kPeerLost;
      if (late || (!status.ok() && !left && !client->is_proven())) ++strangers;
      client = status.ok() && !late ? std::next(client) : clients.erase(client);
    }
    answer_waiting(now);
    if (fds[1].revents != 0) accept_waiting();
  }
}

Status TcpStoreServer::State::start_thread() {
  // Signals are for the program's own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    thread = std::thread([this] { serve(); });
  } catch (const std::system_error& error) {
    status =
        Status(StatusCode::kResource, fmt::format("no thread for the store: {}", error.what()));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

TcpStoreServer::TcpStoreServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::start(const posix::Address& bind,
                                                              const std::string& secret,
                                                              PortRange ports) {
  if (secret.size() < 16) {
    return Status(StatusCode::kInvalidArgument, "a store needs a secret of 16 bytes or more");
  }
  // Without OpenSSL no client could ever prove anything: better said here, once.
  Result<std::string> probe = security::hmac_sha256(secret, "");
  if (!probe.ok()) return probe.status();
  auto state = std::make_unique<State>();
  state->secret = secret;
  Result<posix::UniqueFd> listener =
      bind.port == 0 ? posix::listen_within(ports, bind.text) : posix::listen_at(bind);
  if (!listener.ok()) return listener.status();
  state->listener = std::move(*listener);
  Result<posix::Address> address = posix::local_address(state->listener.get());
  if (!address.ok()) return address.status();
  state->address = *address;
  state->stop.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state->stop) return posix::system_status("eventfd", errno);
  CIUIC_RETURN_IF_ERROR(state->start_thread());
  return std::unique_ptr<TcpStoreServer>(new TcpStoreServer(std::move(state)));
}

TcpStoreServer::~TcpStoreServer() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(state_->stop.get(), &one, sizeof one);
  state_->thread.join();
}

const posix::Address& TcpStoreServer::address() const { return state_->address; }

uint64_t TcpStoreServer::strangers() const { return state_->strangers.load(); }

}  // namespace ciuic::bootstrap
