// SPDX-License-Identifier: Apache-2.0
// bench_py.cc: the native loop of `ciuic bench`, and the pattern by which it checks results.

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/native_loop.h"
#include "module.h"

namespace ciuic::python {
namespace {

MutableBuffer buffer_at(uintptr_t address, int64_t count, int dtype) {
  return {reinterpret_cast<void*>(address), count, static_cast<DataType>(dtype), {}};
}

// A group of its own, so that no Python stands between the loop and the library.
class BenchLoop {
 public:
  explicit BenchLoop(std::unique_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  std::vector<int64_t> all_reduce(uintptr_t address, int64_t count, int dtype, int op, int warm_up,
                                  int iterations, const std::string& algorithm) {
    std::vector<int64_t> nanoseconds(static_cast<size_t>(iterations));
    const Status status = [&] {
      const nb::gil_scoped_release no_gil;
      return bench::time_all_reduce(*communicator_, buffer_at(address, count, dtype),
                                    static_cast<ReduceOp>(op), algorithm, warm_up, nanoseconds);
    }();
    raise_unless_ok(status);
    return nanoseconds;
  }

  void add_plan(const std::string& file) { raise_unless_ok(communicator_->add_plan(file)); }
  std::string describe() const { return communicator_->describe(); }

  void close() {
    const Status status = [&] {
      const nb::gil_scoped_release no_gil;
      return communicator_->close();
    }();
    raise_unless_ok(status);
  }

 private:
  std::unique_ptr<Communicator> communicator_;
};

BenchLoop* create_loop(int rank, int size, int64_t timeout_ms, const std::string& backend,
                       const std::vector<std::string>& mpi_libraries,
                       const std::map<std::string, int64_t>& mpi_constants) {
  CommunicatorOptions options;
  options.rank = rank;
  options.size = size;
  options.group_name = "bench";
  options.timeout_ms = timeout_ms;
  options.backend = backend;
  options.mpi = {mpi_libraries, mpi_constants, 0};
  Result<std::unique_ptr<Communicator>> created = [&] {
    const nb::gil_scoped_release no_gil;
    return Communicator::create(options);
  }();
  raise_unless_ok(created.status());
  return new BenchLoop(std::move(*created));  // Python takes it over
}

}  // namespace

void bind_bench(nb::module_& module) {
  nb::class_<BenchLoop>(module, "BenchLoop", "The native loop of `ciuic bench`; see ciuic.bench.")
      .def("all_reduce", &BenchLoop::all_reduce, nb::arg("address"), nb::arg("count"),
           nb::arg("dtype"), nb::arg("op"), nb::arg("warm_up"), nb::arg("iterations"),
           nb::arg("algorithm") = "",
           "Nanoseconds of each of `iterations` calls in place, after `warm_up` others.")
      .def("add_plan", &BenchLoop::add_plan, nb::arg("file"))
      .def("describe", &BenchLoop::describe)
      .def("close", &BenchLoop::close);
  module.def(
      "create_bench_loop", &create_loop, nb::arg("rank"), nb::arg("size"), nb::arg("timeout_ms"),
      nb::arg("backend") = "auto", nb::arg("mpi_libraries") = std::vector<std::string>(),
      nb::arg("mpi_constants") = std::map<std::string, int64_t>(), nb::rv_policy::take_ownership);
  module.def(
      "bench_fill",
      [](uintptr_t address, int64_t count, int dtype, int op, int rank, int size) {
        bench::fill_pattern(buffer_at(address, count, dtype), static_cast<ReduceOp>(op), rank,
                            size);
      },
      nb::arg("address"), nb::arg("count"), nb::arg("dtype"), nb::arg("op"), nb::arg("rank"),
      nb::arg("size"));
  module.def(
      "bench_first_difference",
      [](uintptr_t address, int64_t count, int dtype, int op, int size) {
        return bench::first_difference(buffer_at(address, count, dtype), static_cast<ReduceOp>(op),
                                       size);
      },
      nb::arg("address"), nb::arg("count"), nb::arg("dtype"), nb::arg("op"), nb::arg("size"));
}

}  // namespace ciuic::python
