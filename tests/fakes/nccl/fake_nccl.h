// SPDX-License-Identifier: Apache-2.0
// fake_nccl.h: what the fake libnccl.so.2 has beside NCCL's own functions. Looked up by dlsym.
#pragma once

#include "cudart/fake_cuda.h"

// Makes ncclCommGetAsyncError() answer `code` from now on. Returns ncclSuccess, or that there is no
// such communicator.
FAKE_API int ciuic_fake_nccl_fail(void* comm, int code);
