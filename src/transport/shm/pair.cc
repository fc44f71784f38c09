// SPDX-License-Identifier: Apache-2.0
// pair.cc: the stages of a pair.

#include "transport/shm/pair.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/assert.h"
#include "base/printable.h"

namespace ciuic::transport::shm {

// The messages. They never leave the host, so they go as they lie in memory.
struct Offer {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t bytes;  // of the segment; 0: there was no memory for one
};

struct Proof {
  Nonce nonce;  // zeros: the segment could not be read
};

struct Verdict {
  uint32_t ok;
  uint32_t code;
  std::array<char, 248> reason;  // ends with a zero byte
};

static constexpr size_t kOfferedFds = 2;  // the segment, the doorbell
static constexpr std::array<char, 8> kOfferMagic = {'c', 'i', 'u', 'i', 'c', 'o', 'f', 'r'};

template <typename T>
static std::string bytes_of(const T& message) {
  return std::string(reinterpret_cast<const char*>(&message), sizeof message);
}

template <typename T>
static T message_of(const std::string& bytes) {
  T message;
  CIUIC_ASSERT(bytes.size() == sizeof message);
  std::memcpy(&message, bytes.data(), sizeof message);
  return message;
}

Pair::Pair(std::shared_ptr<Segment> segment, int peer, int doorbell)
    : segment_(std::move(segment)), peer_(peer), doorbell_(doorbell) {}

bool Pair::is_sending() {
  return !out_.empty() || (stage_ == Stage::kProving && handshake_->is_sending());
}

void Pair::connected(posix::UniqueFd socket, security::Handshake handshake) {
  socket_ = std::move(socket);
  handshake_.emplace(std::move(handshake));
  stage_ = Stage::kProving;
}

void Pair::proven(posix::UniqueFd socket) {
  socket_ = std::move(socket);
  handshake_.reset();
  const auto bytes = static_cast<uint32_t>(segment_ != nullptr ? segment_->bytes() : 0);
  in_wanted_ = sizeof(Offer);
  begin(Stage::kOffer, bytes_of(Offer{kOfferMagic, kSegmentVersion, bytes}));
}

void Pair::begin(Stage stage, std::string out) {
  stage_ = stage;
  out_ = std::move(out);
  in_wanted_ = out_.size();  // both sides send alike
  in_.clear();
}

void Pair::fail(Status reason) {
  if (settled()) return;
  stage_ = Stage::kFailed;
  reason_ = std::move(reason);
  socket_.reset();
  out_.clear();
  outcome_ = {};
}

Pair::Outcome Pair::take_outcome() {
  CIUIC_ASSERT(stage_ == Stage::kDone);
  outcome_.socket = std::move(socket_);
  return std::move(outcome_);
}

void Pair::prove() {
  Result<bool> done = handshake_->progress(socket_.get());
  if (done.ok()) {
    if (*done) proven(std::move(socket_));
    return;
  }
  if (done.status().code() != StatusCode::kPeerLost) return fail(done.status());
  socket_.reset();
  stage_ = Stage::kConnecting;
}

Result<bool> Pair::exchange() {
  while (!out_.empty()) {
    // The descriptors go with the first byte of the offer.
    const bool first =
        stage_ == Stage::kOffer && out_.size() == sizeof(Offer) && segment_ != nullptr;
    const std::array<int, kOfferedFds> fds = {first ? segment_->fd() : -1, doorbell_};
    const std::span<const int> with = first ? std::span<const int>(fds) : std::span<const int>();
    Result<size_t> count = posix::send_with_fds(socket_.get(), out_.data(), out_.size(), with);
    if (!count.ok()) return count.status();
    if (*count == 0) break;
    out_.erase(0, *count);
  }
  while (in_.size() < in_wanted_) {
    const size_t had = in_.size();
    in_.resize(in_wanted_);
    Result<size_t> count =
        posix::receive_with_fds(socket_.get(), in_.data() + had, in_wanted_ - had, &passed_);
    in_.resize(had + (count.ok() ? *count : 0));
    if (!count.ok()) return count.status();
    // Who passes more than an offer has would fill up this process's table, a few at a time.
    if (passed_.size() > kOfferedFds) passed_.resize(kOfferedFds + 1);
    if (*count == 0) return false;
  }
  return out_.empty();
}

void Pair::progress() {
  if (stage_ == Stage::kProving) prove();
  while (stage_ == Stage::kOffer || stage_ == Stage::kProof || stage_ == Stage::kVerdict) {
    Result<bool> done = exchange();
    if (!done.ok()) return fail(done.status());
    if (!*done) return;
    if (stage_ == Stage::kOffer) {
      look_at_offer();
    } else if (stage_ == Stage::kProof) {
      look_at_proof();
    } else {
      look_at_verdict();
    }
  }
}

// Maps what came, and tells its nonce. What is wrong here is said in the verdict, so that the peer
// hears of it.
void Pair::look_at_offer() {
  const auto offer = message_of<Offer>(in_);
  Proof proof{};
  verdict_ = [&]() -> Status {
    if (segment_ == nullptr) return Status(StatusCode::kResource, "no memory to share");
    const size_t bytes = segment_->bytes();
    if (offer.magic == kOfferMagic && offer.version == kSegmentVersion && offer.bytes == 0) {
      return Status(StatusCode::kResource, fmt::format("rank {} has no memory to share", peer_));
    }
    if (offer.magic != kOfferMagic || offer.version != kSegmentVersion || offer.bytes != bytes) {
      return Status(
          StatusCode::kMismatch,
          fmt::format("rank {} offers a segment of version {} with {} bytes, not {} with {}", peer_,
                      offer.version, offer.bytes, kSegmentVersion, bytes));
    }
    if (passed_.size() != kOfferedFds) {
      return Status(StatusCode::kMismatch, fmt::format("rank {} passed {} descriptors, not 2; the "
                                                       "kernel may not let them through",
                                                       peer_, passed_.size()));
    }
    CIUIC_RETURN_IF_ERROR(posix::check_sealed(passed_[0].get(), bytes));
    // Ringing must never wait.
    if ((::fcntl(passed_[1].get(), F_GETFL) & O_NONBLOCK) == 0) {
      return Status(StatusCode::kMismatch, fmt::format("rank {} passed no doorbell", peer_));
    }
    Result<posix::Mapping> mapping = posix::Mapping::map(passed_[0].get(), bytes, false);
    if (!mapping.ok()) return mapping.status();
    Result<SegmentView> view = check_segment(*mapping, segment_->owner(), peer_);
    if (!view.ok()) return view.status();
    proof.nonce = view->header().nonce;
    outcome_.mapping = std::move(*mapping);
    outcome_.view = *view;
    outcome_.doorbell = std::move(passed_[1]);
    return {};
  }();
  passed_.clear();
  begin(Stage::kProof, bytes_of(proof));
}

void Pair::look_at_proof() {
  const auto proof = message_of<Proof>(in_);
  if (verdict_.ok() && proof.nonce != segment_->nonce()) {
    verdict_ = Status(StatusCode::kMismatch,
                      fmt::format("rank {} did not read this rank's memory", peer_));
  }
  Verdict verdict{};
  verdict.ok = verdict_.ok() ? 1 : 0;
  verdict.code = static_cast<uint32_t>(verdict_.code());
  const std::string& reason = verdict_.message();
  std::memcpy(verdict.reason.data(), reason.data(),
              std::min(reason.size(), verdict.reason.size() - 1));
  begin(Stage::kVerdict, bytes_of(verdict));
}

void Pair::look_at_verdict() {
  auto verdict = message_of<Verdict>(in_);
  if (!verdict_.ok()) return fail(verdict_);
  if (verdict.ok == 1) {
    stage_ = Stage::kDone;
    return;
  }
  verdict.reason.back() = '\0';
  const std::string reason = printable(verdict.reason.data());
  fail(Status(StatusCode::kMismatch, fmt::format("rank {}: {}", peer_, reason)));
}

}  // namespace ciuic::transport::shm
