// SPDX-License-Identifier: Apache-2.0
// log.cc: the process's log sink.

#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>
#include <utility>

namespace ciuic {

namespace log_internal {
std::atomic<LogLevel> level{LogLevel::kWarn};
}

namespace {

struct Sink {
  std::mutex mutex;
  LogCallback callback;
  int file = -1;  // -1: stderr
};

// Never destroyed: a background thread may log while the process's statics are being destroyed.
Sink& sink() {
  static Sink& the_sink = *new Sink;
  return the_sink;
}

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

// "2026-01-31T12:00:00.123456 ciuic[4711] warn: message\n", in UTC.
std::string line_of(LogLevel level, std::string_view message) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06} ciuic[{}] {}: {}\n",
                     parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
                     parts.tm_min, parts.tm_sec, now.tv_nsec / 1000, getpid(), name_of(level),
                     message);
}

// A log that cannot be written is not an error of the operation that logged.
void write_all(int file, std::string_view line) {
  while (!line.empty()) {
    const ssize_t written = write(file, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    line.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

const char* name_of(LogLevel level) {
  switch (level) {
    case LogLevel::kWarn: return "warn";
    case LogLevel::kInfo: return "info";
    case LogLevel::kDebug: return "debug";
    case LogLevel::kTrace: return "trace";
  }
  return "unknown";
}

std::optional<LogLevel> log_level_named(std::string_view name) {
  for (LogLevel level : {LogLevel::kWarn, LogLevel::kInfo, LogLevel::kDebug, LogLevel::kTrace}) {
    if (name == name_of(level)) return level;
  }
  return std::nullopt;
}

void set_log_level(LogLevel level) { log_internal::level.store(level, std::memory_order_relaxed); }

void set_log_callback(LogCallback callback) {
  const std::lock_guard lock(sink().mutex);
  sink().callback = std::move(callback);
}

Result<std::string> expand_log_path(const std::string& path) {
  std::string expanded;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '%') {
      expanded += path[i];
      continue;
    }
    const char kind = i + 1 < path.size() ? path[i + 1] : '\0';
    switch (kind) {
      case 'h': expanded += host_name(); break;
      case 'p': expanded += std::to_string(getpid()); break;
      case '%': expanded += '%'; break;
      default:
        return Status(
            StatusCode::kInvalidArgument,
            fmt::format("log file \"{}\": after % come h (host), p (process) or %", path));
    }
    ++i;
  }
  return expanded;
}

Status set_log_file(const std::string& path) {
  int file = -1;
  if (!path.empty()) {
    const Result<std::string> expanded = expand_log_path(path);
    if (!expanded.ok()) return expanded.status();
    file = open(expanded->c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) {
      return Status(
          StatusCode::kInvalidArgument,
          fmt::format("log file \"{}\" cannot be opened: {}", *expanded, std::strerror(errno)));
    }
  }
  const std::lock_guard lock(sink().mutex);
  if (sink().file >= 0) close(sink().file);
  sink().file = file;
  return {};
}

void write_log(LogLevel level, std::string_view message) {
  const std::lock_guard lock(sink().mutex);
  if (sink().callback) {
    sink().callback(level, message);
    return;
  }
  write_all(sink().file >= 0 ? sink().file : STDERR_FILENO, line_of(level, message));
}

}  // namespace ciuic
