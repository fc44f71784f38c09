// SPDX-License-Identifier: Apache-2.0
// fake_cuda.h: what the fake libcudart.so.13 has beside CUDA's own functions: for tests, and for
// the fake libnccl. Looked up by dlsym, or linked.
#pragma once

#include <cstddef>
#include <cstdint>

#define FAKE_API extern "C" __attribute__((visibility("default")))

// Where host code may read and write device memory; null where the pointer is in none.
FAKE_API void* ciuic_fake_host_of(const void* device_pointer);

// Bytes from the pointer to the end of its allocation, on a device or pinned; 0 where it is in
// none.
FAKE_API size_t ciuic_fake_room(const void* pointer);

// Work on a stream. Each starts when its turn has come, and then a delay more: the one given, or
// FAKE_CUDA_DELAY_US. They return a code of CUDA's.
//   enqueue  `function(data)`, on the stream's thread; it must not call CUDA's functions
//   fill     a kernel that writes `bytes` times `byte_value`
//   store    a kernel that writes bytes which are taken from the host at the call
FAKE_API int ciuic_fake_enqueue(void* stream, void (*function)(void*), void* data);
FAKE_API int ciuic_fake_fill(void* stream, void* device_pointer, size_t bytes, int byte_value,
                             int64_t delay_us);
FAKE_API int ciuic_fake_store(void* stream, void* device_pointer, const void* host_bytes,
                              size_t bytes, int64_t delay_us);

// What stands on `to` from now on waits for what stands on `from`. No call of CUDA's is counted.
FAKE_API int ciuic_fake_join(void* from, void* to);

// The device of a stream, of the thread's current one for the null stream; -1: no such stream.
FAKE_API int ciuic_fake_stream_device(void* stream);

// What cudaStreamIsCapturing() answers.
FAKE_API int ciuic_fake_set_capturing(void* stream, int status);

// Functions that from now on do nothing and return success, by name, with commas: a forgotten
// synchronisation. Begins as FAKE_CUDA_DROP.
FAKE_API void ciuic_fake_drop(const char* names);

// How often a function of CUDA's, or of NCCL's, was called in this process, dropped or not. `count`
// is for the fake libnccl.
FAKE_API int64_t ciuic_fake_calls(const char* name);
FAKE_API void ciuic_fake_count(const char* name);
