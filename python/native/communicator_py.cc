// SPDX-License-Identifier: Apache-2.0
// communicator_py.cc: Communicator. An array comes as address, count and the number of its dtype
// and device (module.h): integers cost less than a DLPack capsule, and ciuic/buffers.py has looked
// at the array already.

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "ciuic/mpi.h"
#include "module.h"

namespace ciuic::python {
namespace {

// How long a wait for the join goes on before it looks for Ctrl-C.
constexpr std::chrono::milliseconds kSignalCheck{50};
// What a join may take beyond its time-out, to tell the others of its error.
constexpr int64_t kGraceMs = 3'000;

ConstBuffer input_at(uintptr_t address, int64_t count, int dtype) {
  const Placed place = placed(dtype);
  return {reinterpret_cast<const void*>(address), count, place.dtype, place.device};
}

MutableBuffer output_at(uintptr_t address, int64_t count, int dtype) {
  const Placed place = placed(dtype);
  return {reinterpret_cast<void*>(address), count, place.dtype, place.device};
}

// What follows from a communicator's backend.
struct Manners {
  bool on_this_thread = false;  // joins may run nowhere else, and end with their time-out alone
  bool keeps_memory = false;    // an operation that has failed may still be writing
};

class PyCommunicator {
 public:
  PyCommunicator(std::unique_ptr<Communicator> communicator, Manners manners)
      : communicator_(std::move(communicator)), manners_(manners) {}

  PyCommunicator(const PyCommunicator&) = delete;
  PyCommunicator& operator=(const PyCommunicator&) = delete;

  ~PyCommunicator() {
    const nb::gil_scoped_release no_gil;  // callbacks that end here may want it
    communicator_.reset();
  }

  Communicator& get() { return *communicator_; }
  const std::shared_ptr<Communicator>& shared() const { return communicator_; }
  Manners manners() const { return manners_; }

  // With `keep` None an operation blocks and gives None, else it gives its Work, and `keep` lives
  // until it has ended. `device`: of its arrays. `wait_follows`: the caller waits for it at once.
  template <typename Call>
  nb::object run_or_start(nb::object keep, const Device& device, OperationOptions options,
                          Call call) {
    options.wait_follows |= keep.is_none();
    const bool is_on_gpu = device.kind == DeviceKind::kCuda;
    if (is_on_gpu) [[unlikely]]
      options.stream = current_stream(device.index);
    const auto with_options = [&](Communicator& communicator) {
      return call(communicator, options);
    };
    if (!keep.is_none()) return start(std::move(keep), device, with_options);
    run(is_on_gpu ? &options.stream : nullptr, with_options);
    return nb::none();
  }

 private:
  // Calls one operation and waits for its end, or has the stream wait.
  template <typename Call>
  void run(const Stream* stream, Call call) {
    bool was_interrupted = false;
    bool was_sent = false;
    Status status;
    {
      const nb::gil_scoped_release no_gil;
      Result<Work> work = call(*communicator_);
      status = work.ok() ? wait_interruptibly(*work, stream, communicator_, &was_interrupted)
                         : work.status();
      was_sent = work.ok();
    }
    if (was_sent && !status.ok() && manners_.keeps_memory) keep_callers_memory();
    if (was_interrupted) throw nb::python_error();
    raise_unless_ok(status);
  }

  template <typename Call>
  nb::object start(nb::object keep, const Device& device, Call call) {
    Result<Work> work = [&] {
      const nb::gil_scoped_release no_gil;
      return call(*communicator_);
    }();
    raise_unless_ok(work.status());
    return make_work(std::move(*work), device, communicator_, std::move(keep),
                     manners_.keeps_memory);
  }

  std::shared_ptr<Communicator> communicator_;
  Manners manners_;
};

// A join under way. It runs on a thread of its own, so that the wait for it ends with Ctrl-C, and
// with its time-out where a store of Python's does not come back from a call; then the join is left
// to end by itself, and what it made is dropped there.
struct Join {
  std::function<Result<std::unique_ptr<Communicator>>()> make;
  TimeNs deadline = kNever;
  std::shared_ptr<std::atomic<bool>> abandoned = std::make_shared<std::atomic<bool>>(false);
  std::mutex mutex;
  std::condition_variable ended;
  std::optional<Result<std::unique_ptr<Communicator>>> result;
};

void run_join(const std::shared_ptr<Join>& join) {
  Result<std::unique_ptr<Communicator>> result = join->make();
  join->make = nullptr;  // lets go of the store
  const std::lock_guard lock(join->mutex);
  join->result.emplace(std::move(result));
  join->ended.notify_one();
}

enum class JoinEnd { kEnded, kInterrupted, kStuck };

JoinEnd wait_for_join(Join& join) {
  std::unique_lock lock(join.mutex);
  while (!join.ended.wait_for(lock, kSignalCheck, [&] { return join.result.has_value(); })) {
    lock.unlock();
    if (interrupted()) return JoinEnd::kInterrupted;
    if (now_ns() >= join.deadline) return JoinEnd::kStuck;
    lock.lock();
  }
  return JoinEnd::kEnded;
}

// Gives a join that was abandoned the time to leave Python.
bool ends_soon(Join& join) {
  std::unique_lock lock(join.mutex);
  return join.ended.wait_for(lock, 10 * kSignalCheck, [&] { return join.result.has_value(); });
}

PyCommunicator* finish_join(const std::shared_ptr<Join>& join, Manners manners) {
  JoinEnd end = JoinEnd::kEnded;
  if (manners.on_this_thread) {
    const nb::gil_scoped_release no_gil;
    run_join(join);
  } else {
    const nb::gil_scoped_release no_gil;
    std::thread thread([join] { run_join(join); });
    end = wait_for_join(*join);
    if (end != JoinEnd::kEnded) join->abandoned->store(true);
    if (end == JoinEnd::kEnded || ends_soon(*join)) {
      thread.join();
    } else {
      thread.detach();
    }
  }
  if (end == JoinEnd::kInterrupted) throw nb::python_error();
  if (end == JoinEnd::kStuck) {
    raise_unless_ok({StatusCode::kTimeout,
                     "the join did not end in time: a call of the store has not returned; look "
                     "whether what serves it is there"});
  }
  raise_unless_ok(join->result->status());
  if (**join->result == nullptr) return nullptr;  // split(): this rank is in no group
  return new PyCommunicator(std::move(**join->result), manners);  // Python's, by take_ownership
}

PyCommunicator* create(int rank, int size, nb::object store, const std::string& group_name,
                       int64_t timeout_ms, size_t buffer_size, const std::string& backend,
                       int device, const std::string& cuda_library, const std::string& nccl_library,
                       const std::vector<std::string>& mpi_libraries,
                       const std::map<std::string, int64_t>& mpi_constants,
                       uintptr_t mpi_communicator, bool on_this_thread) {
  const auto join = std::make_shared<Join>();
  CommunicatorOptions options;
  options.rank = rank;
  options.size = size;
  options.store = store_from(store, join->abandoned);
  options.group_name = group_name;
  options.timeout_ms = timeout_ms;
  options.buffer_size = buffer_size;
  options.backend = backend;
  options.device = device;
  options.cuda_library = cuda_library;
  options.nccl_library = nccl_library;
  options.mpi = {mpi_libraries, mpi_constants, mpi_communicator};
  if (timeout_ms >= 0) join->deadline = deadline_after(now_ns(), timeout_ms + kGraceMs);
  join->make = [options = std::move(options)] { return Communicator::create(options); };
  return finish_join(join, {.on_this_thread = on_this_thread, .keeps_memory = backend == "mpi"});
}

PyCommunicator* shrink(PyCommunicator& self, int64_t timeout_ms) {
  const auto join = std::make_shared<Join>();
  join->make = [communicator = self.shared(), timeout_ms] {
    return communicator->shrink(timeout_ms);
  };
  return finish_join(join, self.manners());
}

void abort(PyCommunicator& self, const std::string& reason) {
  Status status = [&] {
    const nb::gil_scoped_release no_gil;
    return self.get().abort(reason);
  }();
  raise_unless_ok(status);
}

// Raises the error with which the group has ended.
void check(PyCommunicator& self) {
  Status status = [&] {
    const nb::gil_scoped_release no_gil;
    return self.get().status();
  }();
  raise_unless_ok(status);
}

nb::object all_reduce(PyCommunicator& self, uintptr_t input, uintptr_t output, int64_t count,
                      int dtype, int op, int64_t timeout_ms, nb::object keep, bool wait_follows) {
  return self.run_or_start(std::move(keep), placed(dtype).device,
                           {.timeout_ms = timeout_ms, .wait_follows = wait_follows},
                           [&](Communicator& communicator, const OperationOptions& options) {
                             return communicator.all_reduce(input_at(input, count, dtype),
                                                            output_at(output, count, dtype),
                                                            static_cast<ReduceOp>(op), options);
                           });
}

nb::object all_reduce_by(PyCommunicator& self, const std::string& algorithm, uintptr_t input,
                         uintptr_t output, int64_t count, int dtype, int op, int64_t timeout_ms,
                         nb::object keep, bool wait_follows) {
  Call call = Call::all_reduce(input_at(input, count, dtype), output_at(output, count, dtype),
                               static_cast<ReduceOp>(op));
  call.algorithm = algorithm;
  return self.run_or_start(std::move(keep), placed(dtype).device,
                           {.timeout_ms = timeout_ms, .wait_follows = wait_follows},
                           [&](Communicator& communicator, const OperationOptions& options) {
                             return communicator.submit(call, options);
                           });
}

// That of the first array; the core looks whether all are on one.
Device device_of(const std::vector<Call>& calls) {
  for (const Call& call : calls) {
    for (const Device& device : {call.input.device, call.output.device}) {
      if (device.kind == DeviceKind::kCuda) return device;
    }
  }
  return {};
}

// Several calls as one, which blocks where `keep` is None.
nb::object submit(PyCommunicator& self, const std::vector<Call>& calls, int64_t timeout_ms,
                  nb::object keep, bool wait_follows, bool of_library) {
  return self.run_or_start(
      std::move(keep), device_of(calls),
      {.timeout_ms = timeout_ms, .wait_follows = wait_follows, .of_library = of_library},
      [&](Communicator& communicator, const OperationOptions& options) {
        return communicator.submit(calls, options);
      });
}

class PyPersistent {
 public:
  PyPersistent(PersistentOperation operation, const Device& device,
               std::shared_ptr<Communicator> communicator, nb::object keep, bool keeps_memory)
      : device_(device),
        communicator_(std::move(communicator)),
        operation_(std::move(operation)),
        keep_(std::move(keep)),
        keeps_memory_(keeps_memory) {}

  nb::object start() {
    const bool is_on_gpu = device_.kind == DeviceKind::kCuda;
    const Stream stream = is_on_gpu ? current_stream(device_.index) : Stream();
    Result<Work> work = [&] {
      const nb::gil_scoped_release no_gil;
      return is_on_gpu ? operation_.start(stream) : operation_.start();
    }();
    raise_unless_ok(work.status());
    return make_work(std::move(*work), device_, communicator_, keep_, keeps_memory_);
  }

 private:
  Device device_;
  std::shared_ptr<Communicator> communicator_;  // outlives the operation
  PersistentOperation operation_;
  nb::object keep_;
  bool keeps_memory_;
};

PyPersistent* persistent(PyCommunicator& self, const std::vector<Call>& calls, int64_t timeout_ms,
                         bool wait_follows, nb::object keep) {
  const Device device = device_of(calls);
  OperationOptions options{.timeout_ms = timeout_ms, .wait_follows = wait_follows};
  if (device.kind == DeviceKind::kCuda) options.stream = current_stream(device.index);
  Result<PersistentOperation> made = self.get().persistent(calls, options);
  raise_unless_ok(made.status());
  return new PyPersistent(std::move(*made), device, self.shared(), std::move(keep),
                          self.manners().keeps_memory);
}

void add_plan(PyCommunicator& self, const std::string& file) {
  const Status status = [&] {
    const nb::gil_scoped_release no_gil;  // the proof of a large plan takes a while
    return self.get().add_plan(file);
  }();
  raise_unless_ok(status);
}

PyCommunicator* subgroup(PyCommunicator& self, const std::vector<int>& ranks, int64_t timeout_ms) {
  const auto join = std::make_shared<Join>();
  join->make = [communicator = self.shared(), ranks, timeout_ms] {
    return communicator->subgroup(ranks, timeout_ms);
  };
  return finish_join(join, self.manners());
}

// None where `color` is that of no group.
PyCommunicator* split(PyCommunicator& self, int color, int key, int64_t timeout_ms) {
  const auto join = std::make_shared<Join>();
  join->make = [communicator = self.shared(), color, key, timeout_ms] {
    return communicator->split(color, key, timeout_ms);
  };
  return finish_join(join, self.manners());
}

void close(PyCommunicator& self) {
  Status status = [&] {
    const nb::gil_scoped_release no_gil;
    return self.get().close();
  }();
  raise_unless_ok(status);
}

nb::dict memory_usage(PyCommunicator& self) {
  const MemoryUsage usage = self.get().memory_usage();
  nb::dict result;
  result["staging"] = usage.staging;
  result["segments"] = usage.segments;
  result["links"] = usage.links;
  result["tensors"] = usage.tensors;
  return result;
}

// Memory for a tensor. It has the buffer protocol, by which NumPy and PyTorch lay arrays over it
// that keep it.
struct TensorMemory {
  std::shared_ptr<std::byte> data;
  size_t bytes = 0;
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const TensorMemory& memory = nb::cast<const TensorMemory&>(nb::handle(self));
  return PyBuffer_FillInfo(view, self, memory.data.get(), static_cast<Py_ssize_t>(memory.bytes),
                           /*readonly=*/0, flags);
}

PyType_Slot tensor_memory_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                                     {0, nullptr}};

TensorMemory allocate(PyCommunicator& self, size_t bytes) {
  Result<std::shared_ptr<std::byte>> data = [&] {
    const nb::gil_scoped_release no_gil;  // the pages of a large one take a while
    return self.get().allocate(bytes);
  }();
  raise_unless_ok(data.status());
  return {std::move(*data), bytes};
}

}  // namespace

void bind_communicator(nb::module_& module) {
  nb::class_<PyCommunicator>(module, "Communicator", "A group of ranks; see ciuic.CiuicContext.")
      .def_prop_ro("rank", [](PyCommunicator& self) { return self.get().rank(); })
      .def_prop_ro("size", [](PyCommunicator& self) { return self.get().size(); })
      .def("all_reduce", &all_reduce, nb::arg("input"), nb::arg("output"), nb::arg("count"),
           nb::arg("dtype"), nb::arg("op"), nb::arg("timeout_ms"), nb::arg("keep").none(),
           nb::arg("wait_follows") = false)
      .def("all_reduce_by", &all_reduce_by, nb::arg("algorithm"), nb::arg("input"),
           nb::arg("output"), nb::arg("count"), nb::arg("dtype"), nb::arg("op"),
           nb::arg("timeout_ms"), nb::arg("keep").none(), nb::arg("wait_follows") = false)
      .def("submit", &submit, nb::arg("calls"), nb::arg("timeout_ms"), nb::arg("keep").none(),
           nb::arg("wait_follows") = false, nb::arg("of_library") = false)
      .def("persistent", &persistent, nb::arg("calls"), nb::arg("timeout_ms"),
           nb::arg("wait_follows"), nb::arg("keep"), nb::rv_policy::take_ownership)
      .def("add_plan", &add_plan, nb::arg("file"))
      .def("subgroup", &subgroup, nb::arg("ranks"), nb::arg("timeout_ms"),
           nb::rv_policy::take_ownership)
      .def("split", &split, nb::arg("color"), nb::arg("key"), nb::arg("timeout_ms"),
           nb::rv_policy::take_ownership)
      .def("close", &close)
      .def("abort", &abort, nb::arg("reason"))
      .def("shrink", &shrink, nb::arg("timeout_ms"), nb::rv_policy::take_ownership)
      .def("check", &check)
      .def("allocate", &allocate, nb::arg("bytes"))
      .def("memory_usage", &memory_usage)
      .def("describe", [](PyCommunicator& self) { return self.get().describe(); });

  nb::class_<TensorMemory>(module, "TensorMemory", nb::type_slots(tensor_memory_slots),
                           "Memory for a tensor; see ciuic.empty.");

  nb::class_<PyPersistent>(module, "Persistent", "Calls that are started again and again.")
      .def("start", &PyPersistent::start, "Gives the Work of one more start.");

  module.def(
      "create_communicator", &create, nb::arg("rank"), nb::arg("size"), nb::arg("store").none(),
      nb::arg("group_name"), nb::arg("timeout_ms"), nb::arg("buffer_size"),
      nb::arg("backend") = "auto", nb::arg("device") = -1, nb::arg("cuda_library") = "",
      nb::arg("nccl_library") = "", nb::arg("mpi_libraries") = std::vector<std::string>(),
      nb::arg("mpi_constants") = std::map<std::string, int64_t>(), nb::arg("mpi_communicator") = 0,
      nb::arg("on_this_thread") = false, nb::rv_policy::take_ownership);

  module.def("leave_mpi", &leave_mpi, "At exit: finalises MPI, or ends a job that failed in it.");
}

}  // namespace ciuic::python
