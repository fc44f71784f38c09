// SPDX-License-Identifier: Apache-2.0
// array_py.cc: where an array's bytes are. NumPy and everything else with the buffer protocol, by
// address alone; any other object with DLPack, as bytes with a shape.

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "ciuic/dtype.h"
#include "module.h"

namespace ciuic::python {
namespace {

// Raises BufferError or ValueError where the array is read-only (and `writable` asked for), not
// contiguous, or not aligned.
uintptr_t address_of(nb::handle array, bool writable) {
  Py_buffer view;
  if (PyObject_GetBuffer(array.ptr(), &view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) {
    throw nb::python_error();
  }
  const auto address = reinterpret_cast<uintptr_t>(view.buf);
  const bool aligned = view.itemsize <= 1 || address % static_cast<size_t>(view.itemsize) == 0;
  PyBuffer_Release(&view);  // the caller holds the array, which keeps its memory
  if (!aligned) throw nb::buffer_error("the array's elements are not aligned");
  return address;
}

std::optional<DataType> dtype_of(nb::dlpack::dtype dtype) {
  if (dtype.lanes != 1) return std::nullopt;
  switch (static_cast<nb::dlpack::dtype_code>(dtype.code)) {
    case nb::dlpack::dtype_code::Float:
      if (dtype.bits == 16) return DataType::kFloat16;
      if (dtype.bits == 32) return DataType::kFloat32;
      if (dtype.bits == 64) return DataType::kFloat64;
      return std::nullopt;
    case nb::dlpack::dtype_code::Bfloat:
      return dtype.bits == 16 ? std::optional(DataType::kBFloat16) : std::nullopt;
    case nb::dlpack::dtype_code::Int:
      if (dtype.bits == 32) return DataType::kInt32;
      if (dtype.bits == 64) return DataType::kInt64;
      return std::nullopt;
    case nb::dlpack::dtype_code::UInt:
      return dtype.bits == 8 ? std::optional(DataType::kUInt8) : std::nullopt;
    default: return std::nullopt;
  }
}

// (the same memory as a NumPy array of unsigned integers of that width, number of the dtype or
// None, whether it is on the CPU, whether it may be written). Needs NumPy where it is on the CPU.
nb::tuple dlpack_view(nb::handle object) {
  nb::ndarray<> array;
  bool writable = nb::try_cast(object, array);
  if (!writable) {
    nb::ndarray<nb::ro> read_only;
    if (!nb::try_cast(object, read_only)) {
      throw nb::type_error("no array: neither the buffer protocol nor DLPack gives its memory");
    }
    array = nb::ndarray<>(read_only.handle());
  }
  const std::optional<DataType> dtype = dtype_of(array.dtype());
  nb::object code = nb::none();
  if (dtype) code = nb::int_(static_cast<int>(*dtype));
  if (array.device_type() != nb::device::cpu::value) {
    return nb::make_tuple(nb::none(), code, false, writable);
  }
  std::vector<size_t> shape(array.ndim());
  std::vector<int64_t> strides(array.ndim());
  for (size_t i = 0; i < array.ndim(); ++i) {
    shape[i] = array.shape(i);
    strides[i] = array.stride(i);
  }
  nb::dlpack::dtype bytes = array.dtype();
  bytes.code = static_cast<uint8_t>(nb::dlpack::dtype_code::UInt);
  const nb::ndarray<nb::numpy> view(array.data(), array.ndim(), shape.data(), nb::borrow(object),
                                    strides.data(), bytes);
  return nb::make_tuple(view, code, true, writable);
}

// Memory that several arrays are packed into, to travel as one.
class Scratch {
 public:
  explicit Scratch(size_t bytes)
      : data_(static_cast<std::byte*>(::operator new(bytes, kAlignment))) {}  // or MemoryError
  ~Scratch() { ::operator delete(data_, kAlignment); }

  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  uintptr_t address() const { return reinterpret_cast<uintptr_t>(data_); }

  using Places = std::vector<std::pair<uintptr_t, size_t>>;  // address, bytes

  void pack(const Places& places) {
    const nb::gil_scoped_release no_gil;
    std::byte* target = data_;
    for (const auto& [place, bytes] : places) {
      if (bytes > 0) std::memcpy(target, reinterpret_cast<const void*>(place), bytes);
      target += bytes;
    }
  }

  void unpack(const Places& places) {
    const nb::gil_scoped_release no_gil;
    const std::byte* source = data_;
    for (const auto& [place, bytes] : places) {
      if (bytes > 0) std::memcpy(reinterpret_cast<void*>(place), source, bytes);
      source += bytes;
    }
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  std::byte* data_;
};

}  // namespace

void bind_array(nb::module_& module) {
  module.def("address_of", &address_of, nb::arg("array"), nb::arg("writable"));
  module.def("dlpack_view", &dlpack_view, nb::arg("array"));

  nb::class_<Scratch>(module, "Scratch", "Memory that several arrays travel in as one.")
      .def(nb::init<size_t>(), nb::arg("bytes"))
      .def_prop_ro("address", &Scratch::address)
      .def("pack", &Scratch::pack, nb::arg("places"), "Copies each (address, bytes) in, in order.")
      .def("unpack", &Scratch::unpack, nb::arg("places"), "Copies them out again.");

  nb::dict dtypes;
  nb::dict sizes;
  for (int code = 0; code < kDataTypes; ++code) {
    const auto dtype = static_cast<DataType>(code);
    dtypes[name_of(dtype)] = code;
    sizes[nb::int_(code)] = size_of(dtype);
  }
  module.attr("dtype_codes") = dtypes;
  module.attr("dtype_sizes") = sizes;

  nb::dict ops;
  for (int code = 0; code < kReduceOps; ++code) ops[name_of(static_cast<ReduceOp>(code))] = code;
  module.attr("op_codes") = ops;
  module.def(
      "is_reducible",
      [](int dtype, int op) {
        return is_reducible(static_cast<DataType>(dtype), static_cast<ReduceOp>(op));
      },
      nb::arg("dtype"), nb::arg("op"));
}

}  // namespace ciuic::python
