// SPDX-License-Identifier: Apache-2.0
// open_wheels.cc: opens NVIDIA's own libraries by the drivers, and says a line of each thing tried.
//
//   open_wheels <libcudart> <libnccl>

#include <algorithm>
#include <cstdio>
#include <string>

#include "drivers/cuda/cuda.h"
#include "drivers/nccl/nccl.h"

namespace ciuic {
namespace {

void say(const char* what, const std::string& text) {
  std::printf("%s: %s\n", what, text.c_str());
  std::fflush(stdout);  // also where the next call ends the process
}

std::string text_of(const Status& status) {
  return status.ok() ? "ok" : std::string(name_of(status.code())) + ", " + status.message();
}

void open_both(const char* cudart, const char* libnccl) {
  const Result<const cuda::Library*> runtime = cuda::open_cuda(cudart);
  say("cuda", runtime.ok() ? (*runtime)->path : text_of(runtime.status()));

  say("loaded before", nccl::is_loaded() ? "yes" : "no");
  const std::string paths[] = {libnccl};
  const Result<const nccl::Library*> library = nccl::open_nccl(paths);
  say("nccl", text_of(library.status()));
  if (!library.ok()) return;
  say("loaded", nccl::is_loaded() ? "yes" : "no");
  say("path", (*library)->path);
  say("version", nccl::version_text((*library)->version));
  const nccl::Functions& call = (*library)->functions;
  say("split", call.comm_split != nullptr ? "yes" : "no");

  nccl::UniqueId id;
  const int code = call.get_unique_id(&id);
  say("unique id", text_of(nccl::error_of(call, "ncclGetUniqueId", code, nullptr)));
  const bool is_written =
      std::any_of(id.bytes.begin(), id.bytes.end(), [](char byte) { return byte != 0; });
  say("written", is_written ? "yes" : "no");

  nccl::Comm comm = nullptr;
  nccl::Config config = nccl::default_config((*library)->version);
  const int joined = call.comm_init_rank_config(&comm, 1, id, 0, &config);
  say("join", text_of(nccl::error_of(call, "ncclCommInitRankConfig", joined, nullptr)));
}

}  // namespace
}  // namespace ciuic

int main(int count, char** arguments) {
  if (count != 3) {
    std::fputs("open_wheels <libcudart> <libnccl>\n", stderr);
    return 2;
  }
  ciuic::open_both(arguments[1], arguments[2]);
  return 0;
}
