// SPDX-License-Identifier: Apache-2.0
// settings_fuzz.cc: variables of the environment: our settings, and those of launchers.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/size_text.h"
#include "bootstrap/environment.h"
#include "bootstrap/listening.h"
#include "input.h"
#include "topology/interface_filter.h"

using namespace ciuic;

static void read_settings(const std::vector<std::string>& variables) {
  const Result<Config> config = Config::from(variables);
  fuzz::require_text(config.status());
  if (!config.ok()) return;
  for (const std::string& warning : config->warnings) {
    fuzz::require_text({StatusCode::kInvalidArgument, warning});
  }
  fuzz::require(config->timeout_ms >= 1 && config->buffer_size >= 1, "settings within bounds");
  fuzz::require(config->secret.empty() || config->secret.size() >= 16, "no weak secret");
  const std::string json = config->to_json();
  fuzz::require(!json.empty() && json.back() == ']', "a list of settings");
  fuzz::require(printable(json, json.size()) == json, "JSON is a line of text");
}

static void read_launcher(const std::vector<std::string>& variables) {
  std::map<std::string, std::string> values;
  for (const std::string& variable : variables) {
    const size_t equals = variable.find('=');
    if (equals == std::string::npos) continue;
    values[variable.substr(0, equals)] = variable.substr(equals + 1);
  }
  const auto launched = bootstrap::read_launcher([&](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  });
  fuzz::require_text(launched.status());
  if (!launched.ok()) return;
  fuzz::require(launched->rank >= 0 && (launched->size < 0 || launched->rank < launched->size),
                "a rank within its size");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::string> variables(1);
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == '\n') {
      variables.emplace_back();
    } else if (data[i] != '\0') {
      variables.back() += static_cast<char>(data[i]);
    }
  }
  read_settings(variables);
  read_launcher(variables);
  fuzz::require_text(topology::InterfaceFilter::parse(variables[0]).status());
  fuzz::require_text(bootstrap::Listening::from(variables[0], {20000, 20009}).status());
  const std::optional<int64_t> bytes = parse_size(variables[0]);
  if (bytes) fuzz::require(parse_size(format_size(*bytes)) == bytes, "a size reads the same");
  return 0;
}
