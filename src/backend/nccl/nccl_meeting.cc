// SPDX-License-Identifier: Apache-2.0
// nccl_meeting.cc: one pure look at all cards.

#include "backend/nccl/nccl_meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/printable.h"

namespace ciuic::backend {

std::string NcclCard::text(std::span<const char> from) {
  return printable(std::string(from.data(), ::strnlen(from.data(), from.size())), 512);
}

void NcclCard::set(std::span<char> to, const std::string& text) {
  const size_t bytes = std::min(text.size(), to.size() - 1);
  std::copy_n(text.data(), bytes, to.data());
  to[bytes] = '\0';
}

static Status read_capability(const cuda::Functions& cuda, int device, int32_t* capability) {
  int major = 0;
  int minor = 0;
  int code = cuda.device_get_attribute(&major, cuda::kCapabilityMajor, device);
  if (code == cuda::kSuccess) {
    code = cuda.device_get_attribute(&minor, cuda::kCapabilityMinor, device);
  }
  *capability = 10 * major + minor;
  return cuda::error_of(cuda, "cudaDeviceGetAttribute", code);
}

NcclCard nccl_card(const cuda::Library& cuda, const nccl::Library& nccl, int device, int rank,
                   const Status& own) {
  NcclCard card;
  card.version = nccl.version;
  int code = cuda.functions.device_get_pci_bus_id(card.bus_id.data(),
                                                  static_cast<int>(card.bus_id.size()), device);
  Status status = own;
  if (status.ok()) status = cuda::error_of(cuda.functions, "cudaDeviceGetPCIBusId", code);
  if (status.ok()) status = read_capability(cuda.functions, device, &card.capability);
  if (status.ok() && rank == 0) {
    code = nccl.functions.get_unique_id(&card.id);
    status = nccl::error_of(nccl.functions, "ncclGetUniqueId", code, nullptr);
  }
  if (!status.ok()) {
    card.code = static_cast<int32_t>(status.code());
    NcclCard::set(card.why, status.message());
  }
  return card;
}

Status check_cards(std::span<const NcclCard> cards) {
  std::map<std::pair<std::string, std::string>, size_t> ranks_by_gpu;
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    const NcclCard& card = cards[rank];
    const std::string host = NcclCard::text(card.host_name);
    if (card.code != 0) {
      return {static_cast<StatusCode>(card.code),
              fmt::format("rank {} on {} cannot use NCCL: {}. Nothing was sent.", rank, host,
                          NcclCard::text(card.why))};
    }
    if (card.version / 100 != cards[0].version / 100) {  // a patch may differ
      return {StatusCode::kMismatch,
              fmt::format(
                  "rank {} has NCCL {} and rank 0 has {}; all ranks must have the same one. "
                  "Nothing was sent.",
                  rank, nccl::version_text(card.version), nccl::version_text(cards[0].version))};
    }
    const std::string bus_id = NcclCard::text(card.bus_id);
    const auto [other, is_new] =
        ranks_by_gpu.try_emplace({NcclCard::text(card.host_id), bus_id}, rank);
    if (is_new) continue;
    return {StatusCode::kInvalidArgument,
            fmt::format("ranks {} and {} are both on GPU {} of host {}; NCCL needs one each: set "
                        "the device of each rank, or take backend=\"native\" or \"auto\". Nothing "
                        "was sent.",
                        other->second, rank, bus_id, host)};
  }
  return {};
}

int lowest_capability(std::span<const NcclCard> cards) {
  int lowest = cards.front().capability;
  for (const NcclCard& card : cards) lowest = std::min(lowest, card.capability);
  return lowest;
}

}  // namespace ciuic::backend
