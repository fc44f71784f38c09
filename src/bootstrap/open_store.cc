// SPDX-License-Identifier: Apache-2.0
// open_store.cc: from a URL to a store.

#include <fmt/format.h>

#include "base/config.h"
#include "base/printable.h"
#include "bootstrap/file_store.h"
#include "bootstrap/tcp_store.h"
#include "ciuic/store.h"

namespace ciuic {

Store::~Store() = default;

static Result<std::unique_ptr<Store>> open_tcp(const std::string& place, int64_t timeout_ms) {
  Result<posix::Address> address = posix::split_host_port(place);
  if (!address.ok()) {
    return Status(address.status().code(), fmt::format("the store tcp://{}: {}", printable(place),
                                                       address.status().message()));
  }
  Result<Config> config = Config::from_environment();
  if (!config.ok()) return config.status();
  if (config->secret.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the store tcp://{} wants the job's secret: set CIUIC_SECRET, as the "
                              "launcher that serves it did",
                              place));
  }
  Result<std::unique_ptr<bootstrap::TcpStore>> store = bootstrap::TcpStore::connect(
      *address, config->secret, deadline_after(now_ns(), timeout_ms), config->tls);
  if (!store.ok()) return store.status();
  return std::unique_ptr<Store>(std::move(*store));
}

Result<std::unique_ptr<Store>> open_store(const std::string& url, int64_t timeout_ms) {
  const std::string file = "file://";
  const std::string tcp = "tcp://";
  if (url.starts_with(file)) {
    Result<std::unique_ptr<bootstrap::FileStore>> store =
        bootstrap::FileStore::open(url.substr(file.size()));
    if (!store.ok()) return store.status();
    return std::unique_ptr<Store>(std::move(*store));
  }
  if (url.starts_with(tcp)) return open_tcp(url.substr(tcp.size()), timeout_ms);
  return Status(StatusCode::kInvalidArgument,
                fmt::format("\"{}\" names no store; the forms are file:///directory and "
                            "tcp://host:port",
                            printable(url, 256)));
}

}  // namespace ciuic
