// SPDX-License-Identifier: Apache-2.0
// consumer.cc: a user's program. Checks the library's version and runs a group of one rank.

#include <ciuic/communicator.h>
#include <ciuic/version.h>

#include <cstdio>
#include <cstring>

int main() {
  if (std::strcmp(ciuic::version(), CIUIC_VERSION) != 0 || ciuic::abi() != CIUIC_ABI) {
    std::fprintf(stderr, "headers %s, library %s\n", CIUIC_VERSION, ciuic::version());
    return 1;
  }
  ciuic::CommunicatorOptions options;
  options.rank = 0;
  options.size = 1;
  auto communicator = ciuic::Communicator::create(options);
  if (!communicator.ok()) {
    std::fprintf(stderr, "create: %s\n", communicator.status().message().c_str());
    return 1;
  }
  float values[3] = {1, 2, 3};
  ciuic::MutableBuffer buffer{values, 3, ciuic::DataType::kFloat32};
  auto work = (*communicator)->all_reduce(buffer, buffer, ciuic::ReduceOp::kSum);
  if (!work.ok() || !work->wait().ok() || values[0] != 1 || values[2] != 3) {
    std::fprintf(stderr, "all_reduce failed\n");
    return 1;
  }
  std::printf("ciuic %s\n", ciuic::version());
  return 0;
}
