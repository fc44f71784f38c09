// SPDX-License-Identifier: Apache-2.0
// array_py.cc: where an array's bytes are. NumPy and everything else with the buffer protocol, by
// address alone; any other object with DLPack, as bytes with a shape.

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/dtype_text.h"
#include "ciuic/dtype.h"
#include "module.h"

namespace ciuic::python {
namespace {

// Complex numbers are aligned as their parts are.
bool is_complex(nb::handle array) {
  Py_buffer view;
  if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    return false;
  }
  const bool is = view.format != nullptr && std::strchr(view.format, 'Z') != nullptr;
  PyBuffer_Release(&view);
  return is;
}

// Raises BufferError or ValueError where the array is read-only (and `writable` asked for), not
// contiguous, or not aligned.
uintptr_t address_of(nb::handle array, bool writable) {
  Py_buffer view;
  if (PyObject_GetBuffer(array.ptr(), &view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) {
    throw nb::python_error();
  }
  const auto address = reinterpret_cast<uintptr_t>(view.buf);
  const auto size = static_cast<size_t>(std::max<Py_ssize_t>(view.itemsize, 1));
  PyBuffer_Release(&view);  // the caller holds the array, which keeps its memory
  const bool aligned =
      address % size == 0 || (size >= 8 && address % (size / 2) == 0 && is_complex(array));
  if (!aligned) throw nb::buffer_error("the array's elements are not aligned");
  return address;
}

// By what it is and its bits, as DLPack has them.
std::optional<DataType> dtype_of(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  struct Row {
    Code code;
    int bits;
    DataType dtype;
  };
  static constexpr Row kRows[] = {
      {Code::Float, 32, DataType::kFloat32},
      {Code::Float, 64, DataType::kFloat64},
      {Code::Float, 16, DataType::kFloat16},
      {Code::Bfloat, 16, DataType::kBFloat16},
      {Code::Int, 8, DataType::kInt8},
      {Code::Int, 16, DataType::kInt16},
      {Code::Int, 32, DataType::kInt32},
      {Code::Int, 64, DataType::kInt64},
      {Code::UInt, 8, DataType::kUInt8},
      {Code::UInt, 16, DataType::kUInt16},
      {Code::UInt, 32, DataType::kUInt32},
      {Code::UInt, 64, DataType::kUInt64},
      {Code::Bool, 8, DataType::kBool},
      {Code::Complex, 64, DataType::kComplex64},
      {Code::Complex, 128, DataType::kComplex128},
      {Code::Float8_E4M3FN, 8, DataType::kFloat8E4M3FN},
      {Code::Float8_E5M2, 8, DataType::kFloat8E5M2},
  };
  if (dtype.lanes != 1) return std::nullopt;
  for (const Row& row : kRows) {
    if (static_cast<uint8_t>(row.code) == dtype.code && row.bits == dtype.bits) return row.dtype;
  }
  return std::nullopt;
}

// Whether NumPy has such numbers itself.
bool is_of_numpy(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(dtype.code);
  if (code == Code::Complex) return dtype.bits >= 64;
  return code == Code::Int || code == Code::UInt || code == Code::Float || code == Code::Bool;
}

std::pair<nb::ndarray<>, bool> dlpack_array(nb::handle object) {
  nb::ndarray<> array;
  if (nb::try_cast(object, array)) return {std::move(array), true};
  nb::ndarray<nb::ro> read_only;
  if (!nb::try_cast(object, read_only)) {
    throw nb::type_error("no array: neither the buffer protocol nor DLPack gives its memory");
  }
  return {nb::ndarray<>(read_only.handle()), false};
}

nb::object code_of(nb::dlpack::dtype of_dlpack) {
  const std::optional<DataType> dtype = dtype_of(of_dlpack);
  return dtype ? nb::object(nb::int_(static_cast<int>(*dtype))) : nb::none();
}

// (the same memory as a NumPy array, which holds unsigned integers of that width where NumPy does
// not know the dtype, and is None where there are none; number of the dtype or None; whether it may
// be written). Of the CPU's memory; needs NumPy.
nb::tuple dlpack_view(nb::handle object) {
  const auto [array, writable] = dlpack_array(object);
  const nb::object code = code_of(array.dtype());
  std::vector<size_t> shape(array.ndim());
  std::vector<int64_t> strides(array.ndim());
  for (size_t i = 0; i < array.ndim(); ++i) {
    shape[i] = array.shape(i);
    strides[i] = array.stride(i);
  }
  nb::dlpack::dtype shown = array.dtype();
  if (!is_of_numpy(shown)) shown.code = static_cast<uint8_t>(nb::dlpack::dtype_code::UInt);
  const bool has_whole_bytes = shown.bits % 8 == 0 && shown.bits <= 128 && shown.lanes == 1;
  if (!has_whole_bytes) return nb::make_tuple(nb::none(), code, writable);
  const nb::ndarray<nb::numpy> view(array.data(), array.ndim(), shape.data(), nb::borrow(object),
                                    strides.data(), shown);
  return nb::make_tuple(view, code, writable);
}

// (address; shape; strides in elements; bytes of an element, 0 where they are not whole; number of
// the dtype or None; number of the device; whether it may be written) of an array on a GPU.
nb::tuple cuda_view(nb::handle object) {
  const auto [array, writable] = dlpack_array(object);
  std::vector<int64_t> shape(array.ndim());
  std::vector<int64_t> strides(array.ndim());
  for (size_t i = 0; i < array.ndim(); ++i) {
    shape[i] = static_cast<int64_t>(array.shape(i));
    strides[i] = array.stride(i);
  }
  const nb::dlpack::dtype dtype = array.dtype();
  const int bits = dtype.bits * dtype.lanes;
  return nb::make_tuple(reinterpret_cast<uintptr_t>(array.data()), shape, strides,
                        bits % 8 == 0 ? bits / 8 : 0, code_of(dtype), array.device_id(), writable);
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
  module.def("cuda_view", &cuda_view, nb::arg("array"));

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
  module.def(
      "undefined_pair",
      [](int dtype, int op) {
        return undefined_pair(static_cast<DataType>(dtype), static_cast<ReduceOp>(op));
      },
      nb::arg("dtype"), nb::arg("op"));
}

}  // namespace ciuic::python
