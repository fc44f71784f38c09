// SPDX-License-Identifier: Apache-2.0
// hello_all_reduce.cc: the smallest program; every rank adds up the same three numbers of all.
//
//   cmake -S examples -B build/examples && cmake --build build/examples
//   ciuic run -n 2 build/examples/hello_all_reduce

#include <ciuic/communicator.h>

#include <array>
#include <cstdio>

int main() {
  auto communicator = ciuic::Communicator::create({});
  if (!communicator.ok()) {
    std::fprintf(stderr, "%s\n", communicator.status().message().c_str());
    return 1;
  }
  ciuic::Communicator& group = **communicator;

  std::array<float, 3> x = {1, 2, 3};
  for (float& value : x) value *= static_cast<float>(group.rank() + 1);
  const ciuic::MutableBuffer buffer{x.data(), static_cast<int64_t>(x.size())};
  auto work = group.all_reduce(buffer, buffer, ciuic::ReduceOp::kSum);
  const ciuic::Status status = work.ok() ? work->wait() : work.status();
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    return 1;
  }
  std::printf("rank %d of %d: [%g, %g, %g]\n", group.rank(), group.size(), x[0], x[1], x[2]);
  return 0;
}
