// SPDX-License-Identifier: Apache-2.0
// ordering.cc: CUDA's streams, events and host functions, and what the fake adds.

#include <utility>

#include "cudart/fake_cuda.h"
#include "cudart/machine.h"

using namespace ciuic::fake_cuda;  // NOLINT: the functions have C's names

// ---- streams ----

FAKE_API int cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  return call("cudaStreamCreateWithFlags", [&](Machine& machine) {
    if (flags > kNonBlocking) return kInvalidValue;
    *stream = machine.streams.create(current_device, flags != kNonBlocking);
    return kSuccess;
  });
}

FAKE_API int cudaStreamDestroy(void* stream) {
  return call("cudaStreamDestroy", [&](Machine& machine) {
    return machine.streams.destroy(stream) ? kSuccess : kInvalidResourceHandle;
  });
}

// `body` of the stream that a handle names.
template <typename Body>
static int on_stream(const char* name, void* handle, const Body& body) {
  return call(name, [&](Machine& machine) -> int {
    const auto stream = machine.streams.find(handle, current_device);
    return stream == nullptr ? kInvalidResourceHandle : body(machine, stream);
  });
}

using StreamPointer = std::shared_ptr<Stream>;

FAKE_API int cudaStreamSynchronize(void* handle) {
  return on_stream("cudaStreamSynchronize", handle, [](Machine& machine, const StreamPointer& s) {
    machine.streams.wait(machine.streams.points_of(s));
    return kSuccess;
  });
}

FAKE_API int cudaStreamQuery(void* handle) {
  return on_stream("cudaStreamQuery", handle, [](Machine& machine, const StreamPointer& s) {
    return machine.streams.is_done(machine.streams.points_of(s)) ? kSuccess : kNotReady;
  });
}

FAKE_API int cudaStreamIsCapturing(void* handle, int* status) {
  return on_stream("cudaStreamIsCapturing", handle, [&](Machine& machine, const StreamPointer& s) {
    *status = machine.streams.capturing(s);
    return kSuccess;
  });
}

FAKE_API int cudaStreamWaitEvent(void* handle, void* event, unsigned) {
  return on_stream("cudaStreamWaitEvent", handle, [&](Machine& machine, const StreamPointer& s) {
    const auto found = machine.find_event(event);
    if (found == nullptr) return kInvalidResourceHandle;
    machine.streams.push(s, {.run = {}, .delay_us = 0, .after = found->points});
    return kSuccess;
  });
}

FAKE_API int cudaLaunchHostFunc(void* handle, void (*function)(void*), void* data) {
  return on_stream("cudaLaunchHostFunc", handle, [&](Machine& machine, const StreamPointer& s) {
    if (function == nullptr) return kInvalidValue;
    const auto run = [=] {
      in_host_function = true;
      function(data);
      in_host_function = false;
    };
    machine.streams.push(s, {.run = run, .delay_us = machine.settings.delay_us, .after = {}});
    return kSuccess;
  });
}

// ---- memory in a stream's order ----

FAKE_API int cudaMallocAsync(void** memory, size_t bytes, void* handle) {
  return on_stream("cudaMallocAsync", handle, [&](Machine& machine, const StreamPointer& s) {
    *memory = bytes == 0 ? nullptr : machine.memory.allocate(bytes, s->device);
    return bytes == 0 || *memory != nullptr ? kSuccess : kMemoryAllocation;
  });
}

// Work on another stream that still uses it dies.
FAKE_API int cudaFreeAsync(void* memory, void* handle) {
  return on_stream("cudaFreeAsync", handle, [&](Machine& machine, const StreamPointer& s) {
    if (memory == nullptr) return kSuccess;
    if (!machine.memory.find(memory).is_device) return kInvalidValue;
    machine.streams.push(s, {.run = [&machine, memory] { machine.memory.free(memory, true); },
                             .delay_us = machine.settings.delay_us,
                             .after = {}});
    return kSuccess;
  });
}

// ---- events ----

FAKE_API int cudaEventCreateWithFlags(void** event, unsigned) {
  return call("cudaEventCreateWithFlags", [&](Machine& machine) {
    *event = machine.create_event(current_device);
    return kSuccess;
  });
}

FAKE_API int cudaEventDestroy(void* event) {
  return call("cudaEventDestroy", [&](Machine& machine) {
    return machine.destroy_event(event) ? kSuccess : kInvalidResourceHandle;
  });
}

FAKE_API int cudaEventRecord(void* event, void* handle) {
  return on_stream("cudaEventRecord", handle, [&](Machine& machine, const StreamPointer& s) {
    const auto found = machine.find_event(event);
    if (found == nullptr || found->device != s->device) return kInvalidResourceHandle;
    machine.set_points(event, {machine.streams.push(s, {})});
    return kSuccess;
  });
}

// `body` of what an event waits for; nothing where it was never recorded.
template <typename Body>
static int on_event(const char* name, void* event, const Body& body) {
  return call(name, [&](Machine& machine) -> int {
    const auto found = machine.find_event(event);
    return found == nullptr ? kInvalidResourceHandle : body(machine, found->points);
  });
}

FAKE_API int cudaEventQuery(void* event) {
  return on_event("cudaEventQuery", event, [](Machine& machine, const std::vector<Point>& points) {
    return machine.streams.is_done(points) ? kSuccess : kNotReady;
  });
}

FAKE_API int cudaEventSynchronize(void* event) {
  return on_event("cudaEventSynchronize", event,
                  [](Machine& machine, const std::vector<Point>& points) {
                    machine.streams.wait(points);
                    return kSuccess;
                  });
}

// ---- the fake's own ----

FAKE_API void* ciuic_fake_host_of(const void* device_pointer) {
  const Place place = Machine::get().memory.find(device_pointer);
  return place.is_device ? place.bytes : nullptr;
}

FAKE_API size_t ciuic_fake_room(const void* pointer) {
  const Place place = Machine::get().memory.find(pointer);
  return place.is_device || place.is_pinned ? place.room : 0;
}

FAKE_API int ciuic_fake_enqueue(void* handle, void (*function)(void*), void* data) {
  return on_stream("ciuic_fake_enqueue", handle, [&](Machine& machine, const StreamPointer& s) {
    machine.streams.push(
        s, {.run = [=] { function(data); }, .delay_us = machine.settings.delay_us, .after = {}});
    return kSuccess;
  });
}

FAKE_API int ciuic_fake_join(void* from, void* to) {
  return on_stream("ciuic_fake_join", to, [&](Machine& machine, const StreamPointer& s) {
    const auto first = machine.streams.find(from, current_device);
    if (first == nullptr) return kInvalidResourceHandle;
    const Point point = machine.streams.push(first, {});
    machine.streams.push(s, {.run = {}, .delay_us = 0, .after = {point}});
    return kSuccess;
  });
}

FAKE_API int ciuic_fake_stream_device(void* handle) {
  Machine& machine = Machine::get();
  if (machine.check() != kSuccess) return -1;
  const auto stream = machine.streams.find(handle, current_device);
  return stream == nullptr ? -1 : stream->device;
}

FAKE_API int ciuic_fake_set_capturing(void* handle, int status) {
  return on_stream("ciuic_fake_set_capturing", handle,
                   [&](Machine& machine, const StreamPointer& s) {
                     machine.streams.set_capturing(s, status);
                     return kSuccess;
                   });
}

FAKE_API void ciuic_fake_drop(const char* names) { Machine::get().drop(names); }

FAKE_API void ciuic_fake_count(const char* name) { Machine::get().count(name); }

FAKE_API int64_t ciuic_fake_calls(const char* name) { return Machine::get().calls(name); }
