// SPDX-License-Identifier: Apache-2.0
// launcher_session.cc: pieces in hexadecimal, one fence a value.

#include "bootstrap/launcher_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace ciuic::bootstrap {

static constexpr uint32_t kMaxPieces = 4096;
static constexpr size_t kMostValueBytes = 32 * 1024;

static std::string to_hex(const std::string& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

Status LauncherSession::not_ours() const {
  return {StatusCode::kInvalidArgument, fmt::format("{}: a value that is not ours", name())};
}

Status LauncherSession::leave(const std::string& prefix, const std::string& value,
                              TimeNs deadline) {
  const size_t piece_bytes = std::max<size_t>(space_->value_bytes() / 2, 1);
  uint32_t pieces = 0;
  for (size_t at = 0; at < value.size(); at += piece_bytes) {
    CIUIC_RETURN_IF_ERROR(space_->put(fmt::format("{}-{}", prefix, pieces++),
                                      to_hex(value.substr(at, piece_bytes)), deadline));
  }
  return space_->put(prefix, std::to_string(pieces), deadline);
}

Result<std::string> LauncherSession::fetch(const std::string& prefix, TimeNs deadline) {
  Result<std::string> text = space_->get(prefix, deadline);
  if (!text.ok()) return text;
  uint32_t pieces = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), pieces);
  if (error != std::errc{} || end != text->data() + text->size() || pieces > kMaxPieces) {
    return not_ours();
  }
  std::string bytes;
  for (uint32_t i = 0; i < pieces; ++i) {
    Result<std::string> piece = space_->get(fmt::format("{}-{}", prefix, i), deadline);
    if (!piece.ok()) return piece;
    const bool even = !piece->empty() && piece->size() % 2 == 0;
    if (!even || piece->size() / 2 > kMostValueBytes - bytes.size()) {
      return not_ours();
    }
    for (size_t at = 0; at < piece->size(); at += 2) {
      unsigned value = 0;
      const char* pair = piece->data() + at;
      const auto [rest, wrong] = std::from_chars(pair, pair + 2, value, 16);
      if (wrong != std::errc{} || rest != pair + 2) return not_ours();
      bytes.push_back(static_cast<char>(value));
    }
  }
  return bytes;
}

Result<std::string> LauncherSession::broadcast(const std::string* value, TimeNs deadline) {
  const std::lock_guard lock(mutex_);
  if (!broken_.ok()) return broken_;
  if (value != nullptr && value->size() > kMostValueBytes) {
    return Status(StatusCode::kInvalidArgument, fmt::format("{}: the value is too large", name()));
  }
  const std::string prefix = fmt::format("ciuic-{}", count_++);
  const auto run = [&]() -> Result<std::string> {
    if (value != nullptr) CIUIC_RETURN_IF_ERROR(leave(prefix, *value, deadline));
    CIUIC_RETURN_IF_ERROR(space_->fence(deadline));
    if (value != nullptr) return *value;
    return fetch(prefix, deadline);
  };
  Result<std::string> result = run();
  if (!result.ok()) broken_ = result.status();
  return result;
}

static Status unsupported() {
  return {StatusCode::kUnsupported, "a launcher's store serves the join alone"};
}

Status LauncherStore::set(const std::string&, const std::string&) { return unsupported(); }

Result<std::string> LauncherStore::get(const std::string&, int64_t) { return unsupported(); }

Result<int64_t> LauncherStore::add(const std::string&, int64_t) { return unsupported(); }

}  // namespace ciuic::bootstrap
