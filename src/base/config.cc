// SPDX-License-Identifier: Apache-2.0
// config.cc: the table of settings, and how each is read.

#include "base/config.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/json_text.h"
#include "base/printable.h"
#include "base/size_text.h"

namespace ciuic {

namespace {

constexpr std::string_view kPrefix = "CIUIC_";

// In the order of kReaders. Defaults are text so that one table serves `ciuic info`, the docs and
// the test that compares it with Config's own.
constexpr Setting kSettings[] = {
    {"CIUIC_TRANSPORT", "", "auto, shm, tcp or rdma", "auto",
     "What carries data between ranks; one that is forced is used or fails by name."},
    {"CIUIC_HOST_ID", "", "a line of at most 128 bytes", "",
     "Replaces the boot id in the test of which ranks share a host."},
    {"CIUIC_STORE", "", "file:///directory or tcp://host:port", "", "Where the ranks meet."},
    {"CIUIC_SECRET", "", "an even number of hex digits, 32 or more", "",
     "The job's secret, proven on every connection to a tcp:// store; `ciuic run` sets it."},
    {"CIUIC_TLS", "", "0 or 1", "0",
     "1: TLS 1.3, by a key from the group's secret, on every TCP connection; alike on all ranks."},
    {"CIUIC_LOG", "", "warn, info, debug or trace", "warn", "The least important messages logged."},
    {"CIUIC_LOG_FILE", "", "a path; %h is the host, %p the process", "",
     "The file that messages are appended to, instead of stderr."},
    {"CIUIC_TIMEOUT_MS", "milliseconds", "1 or more", "300000",
     "Time for the join, and for each operation that names none."},
    {"CIUIC_BUFFER_SIZE", "bytes", "1 or more; K, M and G are powers of 1024", "64M",
     "Staging memory of a communicator at most."},
    {"CIUIC_SOCKET_IFNAME", "",
     "a list, with commas, of =eth0 (exact name), eth (prefix), 10.0.0.0/8, 10.1.2.3, or after a ^ "
     "of what not to take",
     "", "The network interfaces or addresses that are used."},
    {"CIUIC_ADVERTISE_ADDRESS", "", "a numeric address, or address:port with CIUIC_PORT_RANGE", "",
     "An address outside a NAT at which others reach this process, tried before its own; a port "
     "stands for the first of CIUIC_PORT_RANGE, and the next ones for those that follow."},
    {"CIUIC_PORT_RANGE", "", "FIRST-LAST, both from 1 to 65535, FIRST not above LAST", "",
     "The TCP ports that listeners take."},
    {"CIUIC_SPIN_US", "microseconds", "-1 (adaptive), 0 or more", "-1",
     "How long a waiting rank spins before it sleeps."},
    {"CIUIC_BACKEND", "", "auto, native, nccl or mpi", "auto",
     "Who carries operations out, where the program says auto, as it does without a word."},
    {"CIUIC_CHECK", "", "0 or 1", "0",
     "1: with backend mpi or nccl, the ranks compare their calls before the library gets them."},
    {"CIUIC_MPI_LIBRARY", "", "a path, or a name that the loader finds", "",
     "The MPI library of backend mpi: one with the ABI of MPI 5."},
    {"CIUIC_CUDA_LIBRARY", "", "a path, or a name that the loader finds", "",
     "The CUDA runtime (libcudart.so) for tensors on a GPU, instead of the one that is loaded."},
    {"CIUIC_NCCL_LIBRARY", "", "a path, or a name that the loader finds", "",
     "The NCCL library (libnccl.so.2) of backend nccl, instead of the one that is loaded."},
    {"CIUIC_TRACE_EVENTS", "events", "0 (off) to 4194304", "4096",
     "What the flight recorder holds, some three events an operation and 64 bytes an event."},
    {"CIUIC_TRACE_DIR", "", "a directory", "",
     "Where flight recorders are written to when a group ends in an error."},
    {"CIUIC_TRACE_FD", "", "the number of a descriptor", "",
     "Memory of the launcher's for the flight recorder; `ciuic run` sets it."},
    {"CIUIC_REPLACE", "", "gloo", "",
     "Groups of torch.distributed with this backend are carried by Ciuic; `ciuic run --replace`."},
};

using Reader = bool (*)(std::string_view text, Config& config);

bool read_int(std::string_view text, int64_t least, int64_t& value) {
  int64_t read = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, read);
  if (error != std::errc() || rest != end || read < least) return false;
  value = read;
  return true;
}

bool read_transport(std::string_view text, Config& config) {
  for (auto choice : {TransportChoice::kAuto, TransportChoice::kShm, TransportChoice::kTcp,
                      TransportChoice::kRdma}) {
    if (text != name_of(choice)) continue;
    config.transport = choice;
    return true;
  }
  return false;
}

bool read_host_id(std::string_view text, Config& config) {
  config.host_id = text;
  // It travels in cards, and stands in messages.
  return text.size() <= 128 && printable(text) == text;
}

bool read_store(std::string_view text, Config& config) {
  config.store = text;
  return text.starts_with("file:///") || text.starts_with("tcp://");
}

int hex_digit(char letter) {
  if ('0' <= letter && letter <= '9') return letter - '0';
  if ('a' <= letter && letter <= 'f') return letter - 'a' + 10;
  if ('A' <= letter && letter <= 'F') return letter - 'A' + 10;
  return -1;
}

bool read_secret(std::string_view text, Config& config) {
  if (text.size() < 32 || text.size() % 2 != 0) return false;
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = hex_digit(text[i]);
    const int low = hex_digit(text[i + 1]);
    if (high < 0 || low < 0) return false;
    bytes += static_cast<char>(high * 16 + low);
  }
  config.secret = std::move(bytes);
  return true;
}

bool read_tls(std::string_view text, Config& config) {
  config.tls = text == "1";
  return text == "0" || text == "1";
}

bool read_log(std::string_view text, Config& config) {
  const std::optional<LogLevel> level = log_level_named(text);
  if (level) config.log_level = *level;
  return level.has_value();
}

bool read_log_file(std::string_view text, Config& config) {
  config.log_file = text;
  return expand_log_path(config.log_file).ok();
}

bool read_timeout_ms(std::string_view text, Config& config) {
  return read_int(text, 1, config.timeout_ms);
}

bool read_buffer_size(std::string_view text, Config& config) {
  const std::optional<int64_t> bytes = parse_size(text);
  if (!bytes || *bytes < 1) return false;
  config.buffer_size = static_cast<size_t>(*bytes);
  return true;
}

bool read_socket_ifname(std::string_view text, Config& config) {
  config.socket_ifname = text;  // its syntax is topology's
  return text.size() <= 1024 && text.find(' ') == std::string_view::npos;
}

bool read_advertise_address(std::string_view text, Config& config) {
  config.advertise_address = text;  // its syntax is bootstrap's
  return text.size() <= 128 && text.find_first_of(" ,/") == std::string_view::npos;
}

bool read_port_range(std::string_view text, Config& config) {
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos) return false;
  int64_t first = 0;
  int64_t last = 0;
  if (!read_int(text.substr(0, dash), 1, first)) return false;
  if (!read_int(text.substr(dash + 1), first, last) || last > UINT16_MAX) return false;
  config.port_range = {static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
  return true;
}

bool read_spin_us(std::string_view text, Config& config) {
  return read_int(text, -1, config.spin_us);
}

bool read_backend(std::string_view text, Config& config) {
  config.backend = text;
  return text == "auto" || text == "native" || text == "nccl" || text == "mpi";
}

bool read_check(std::string_view text, Config& config) {
  config.check = text == "1";
  return text == "0" || text == "1";
}

bool read_mpi_library(std::string_view text, Config& config) {
  config.mpi_library = text;
  return true;
}

bool read_cuda_library(std::string_view text, Config& config) {
  config.cuda_library = text;
  return true;
}

bool read_nccl_library(std::string_view text, Config& config) {
  config.nccl_library = text;
  return true;
}

bool read_trace_events(std::string_view text, Config& config) {
  return read_int(text, 0, config.trace_events) && config.trace_events <= int64_t{1} << 22;
}

bool read_trace_dir(std::string_view text, Config& config) {
  config.trace_dir = text;
  return true;
}

bool read_trace_fd(std::string_view text, Config& config) {
  return read_int(text, 0, config.trace_fd) && config.trace_fd <= INT32_MAX;
}

// For Python, which acts on it when torch is imported.
bool read_replace(std::string_view text, Config& /*config*/) { return text == "gloo"; }

constexpr Reader kReaders[] = {
    read_transport,
    read_host_id,
    read_store,
    read_secret,
    read_tls,
    read_log,
    read_log_file,
    read_timeout_ms,
    read_buffer_size,
    read_socket_ifname,
    read_advertise_address,
    read_port_range,
    read_spin_us,
    read_backend,
    read_check,
    read_mpi_library,
    read_cuda_library,
    read_nccl_library,
    read_trace_events,
    read_trace_dir,
    read_trace_fd,
    read_replace,
};
static_assert(std::size(kReaders) == std::size(kSettings));

const Setting* setting_named(std::string_view name) {
  for (const Setting& setting : kSettings) {
    if (name == setting.name) return &setting;
  }
  return nullptr;
}

bool is_secret(const Setting& setting) { return std::string_view(setting.name) == "CIUIC_SECRET"; }

// Levenshtein's distance: letters to insert, delete or replace.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::string unknown_warning(std::string_view name) {
  const Setting* nearest = std::min_element(
      std::begin(kSettings), std::end(kSettings), [name](const Setting& a, const Setting& b) {
        return distance(name, a.name) < distance(name, b.name);
      });
  return fmt::format("{} is not a setting and has no effect; did you mean {}?", printable(name),
                     nearest->name);
}

Status read_setting(const Setting& setting, std::string_view text, Config& config) {
  const auto index = static_cast<size_t>(&setting - kSettings);
  if (!kReaders[index](text, config)) {
    return {StatusCode::kInvalidArgument,
            fmt::format("{}={} is not valid; allowed: {}", setting.name,
                        is_secret(setting) ? "(hidden)" : printable(text), setting.allowed)};
  }
  config.states[index] = {std::string(text), true};
  return {};
}

}  // namespace

const char* name_of(TransportChoice choice) {
  switch (choice) {
    case TransportChoice::kAuto: return "auto";
    case TransportChoice::kShm: return "shm";
    case TransportChoice::kTcp: return "tcp";
    case TransportChoice::kRdma: return "rdma";
  }
  return "unknown";
}

std::span<const Setting> settings() { return kSettings; }

Result<Config> Config::from(std::span<const std::string> variables) {
  Config config;
  for (const Setting& setting : kSettings) config.states.push_back({setting.default_value, false});
  for (const std::string_view variable : variables) {
    if (!variable.starts_with(kPrefix)) continue;
    const size_t equals = variable.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = variable.substr(0, equals);
    const std::string_view text = variable.substr(equals + 1);
    const Setting* setting = setting_named(name);
    if (setting == nullptr) {
      config.warnings.push_back(unknown_warning(name));
    } else if (!text.empty()) {
      CIUIC_RETURN_IF_ERROR(read_setting(*setting, text, config));
    }
  }
  return config;
}

Result<Config> Config::from_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    if (std::string_view(*variable).starts_with(kPrefix)) variables.emplace_back(*variable);
  }
  return from(variables);
}

std::string Config::to_json() const {
  std::string json = "[";
  for (size_t i = 0; i < std::size(kSettings) && i < states.size(); ++i) {
    const Setting& setting = kSettings[i];
    const SettingState& state = states[i];
    const bool hidden = is_secret(setting) && state.from_environment;
    json += fmt::format(R"({}{{"name": {}, "value": {}, "unit": {}, "allowed": {}, "default": {}, )"
                        R"("source": {}, "help": {}}})",
                        i == 0 ? "" : ", ", json_quoted(setting.name),
                        json_quoted(hidden ? "(hidden)" : state.value), json_quoted(setting.unit),
                        json_quoted(setting.allowed), json_quoted(setting.default_value),
                        json_quoted(state.from_environment ? "environment" : "default"),
                        json_quoted(setting.help));
  }
  return json + "]";
}

Status apply_log_settings(const Config& config) {
  set_log_level(config.log_level);
  CIUIC_RETURN_IF_ERROR(set_log_file(config.log_file));
  for (const std::string& warning : config.warnings) log_warn("{}", warning);
  return {};
}

std::optional<std::string> environment_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

}  // namespace ciuic
