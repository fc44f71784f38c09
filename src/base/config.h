// SPDX-License-Identifier: Apache-2.0
// config.h: the settings, and the only reader of the environment.
//
// Config::from_environment() reads every CIUIC_ variable once and gives a plain struct; whoever
// makes a communicator reads it and hands the values down. Nothing below looks for itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/port_range.h"
#include "ciuic/options.h"
#include "ciuic/status.h"

namespace ciuic {

enum class TransportChoice : uint8_t { kAuto = 0, kShm = 1, kTcp = 2, kRdma = 3 };

const char* name_of(TransportChoice choice);  // "auto", "shm", "tcp", "rdma"

// A row of the table of settings.
struct Setting {
  const char* name;           // "CIUIC_TIMEOUT_MS"
  const char* unit;           // "milliseconds"; "" for text and choices
  const char* allowed;        // "1 or more"
  const char* default_value;  // as one would set it; "" where unset differs from every value
  const char* help;           // one sentence
};

std::span<const Setting> settings();

// What is in force for the setting of the same index.
struct SettingState {
  std::string value;              // as text
  bool from_environment = false;  // else the default
};

struct Config {
  TransportChoice transport = TransportChoice::kAuto;
  std::string host_id;  // "": the boot id and network namespace decide who shares a host
  std::string store;    // "": no store was named
  std::string secret;   // bytes, not hex; "": none was given
  bool tls = false;
  LogLevel log_level = LogLevel::kWarn;
  std::string log_file;  // "": stderr
  int64_t timeout_ms = kDefaultTimeoutMs;
  size_t buffer_size = kDefaultBufferSize;
  std::string socket_ifname;      // topology/interface_filter.h; "": all interfaces that are up
  std::string advertise_address;  // bootstrap/listening.h; "": the interfaces' own alone
  PortRange port_range;           // of every listener
  int64_t spin_us = -1;           // -1: adaptive
  std::string backend = "auto";   // where the program says "auto"
  bool check = false;             // calls are compared before another library carries them out
  std::string mpi_library;        // "": where the loader finds one
  std::string cuda_library;       // likewise
  std::string nccl_library;       // likewise
  int64_t trace_events = 4096;    // 0: no flight recorder
  std::string trace_dir;          // "": the process writes no dumps
  int64_t trace_fd = -1;          // -1: the process makes its own memory

  std::vector<SettingState> states;   // one for each of settings()
  std::vector<std::string> warnings;  // about variables that are not known; the caller logs them

  // kInvalidArgument names the variable, its value and what is allowed. A variable that is set to
  // nothing counts as not set.
  static Result<Config> from_environment();

  // The same, of "NAME=value" texts.
  static Result<Config> from(std::span<const std::string> variables);

  // [{"name","value","unit","allowed","default","source","help"}, ...]; the secret's value is not
  // shown.
  std::string to_json() const;
};

// Sets the log sink as `config` says and logs its warnings.
Status apply_log_settings(const Config& config);

// A variable of a launcher, such as "RANK" or "PMI_FD". Nothing where it is not set or empty.
std::optional<std::string> environment_variable(const char* name);

}  // namespace ciuic
