// SPDX-License-Identifier: Apache-2.0
// log.h: one line a message, to stderr, a file or a callback; silent below `warn` by default.
//
// The sink belongs to the process, as stderr does. Any thread may log. Formatting happens only
// where the level is on, but a hot path (engine, links, kernels) does not log at all.
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "ciuic/status.h"

namespace ciuic {

enum class LogLevel : uint8_t { kWarn = 0, kInfo = 1, kDebug = 2, kTrace = 3 };

const char* name_of(LogLevel level);  // "warn", "info", "debug", "trace"
std::optional<LogLevel> log_level_named(std::string_view name);

// Receives a message without level, time or line end. Called with the sink's lock held: it must not
// log, or change the sink.
using LogCallback = std::function<void(LogLevel, std::string_view message)>;

void set_log_level(LogLevel level);

// Sends messages to `callback` instead of stderr or the file; an empty one takes that back.
void set_log_callback(LogCallback callback);

// Appends messages to a file instead of stderr; "" goes back to stderr. In `path`, %h stands for
// the host's name, %p for the process, %% for %. kInvalidArgument: another % in it, or a file that
// cannot be opened; the sink stays as it was.
Status set_log_file(const std::string& path);

// What set_log_file() opens for `path`, on this host and in this process.
Result<std::string> expand_log_path(const std::string& path);

// The message as it is, whatever its level.
void write_log(LogLevel level, std::string_view message);

namespace log_internal {
extern std::atomic<LogLevel> level;
}

inline bool log_enabled(LogLevel level) {
  return level <= log_internal::level.load(std::memory_order_relaxed);
}

template <typename... Args>
void log_at(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) write_log(level, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kWarn, format, std::forward<Args>(args)...);
}

template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kInfo, format, std::forward<Args>(args)...);
}

template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kDebug, format, std::forward<Args>(args)...);
}

template <typename... Args>
void log_trace(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kTrace, format, std::forward<Args>(args)...);
}

}  // namespace ciuic
