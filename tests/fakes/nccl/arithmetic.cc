// SPDX-License-Identifier: Apache-2.0
// arithmetic.cc: one loop for all types, with how each is loaded, stored and added.

#include "nccl/arithmetic.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/float8.h"
#include "kernels/half.h"

namespace ciuic::fake_nccl {

namespace {

template <typename T>
struct Plain {
  using Stored = T;
  using Number = T;
  static T load(T value) { return value; }
  static T store(T value) { return value; }
};

struct Half {
  using Stored = uint16_t;
  using Number = float;
  static float load(uint16_t bits) { return kernels::half_to_float(bits); }
  static uint16_t store(float value) { return kernels::float_to_half(value); }
};

struct BFloat16 {
  using Stored = uint16_t;
  using Number = float;
  static float load(uint16_t bits) { return kernels::bfloat16_to_float(bits); }
  static uint16_t store(float value) { return kernels::float_to_bfloat16(value); }
};

template <typename Shape>
struct Float8 {
  using Stored = uint8_t;
  using Number = float;
  static float load(uint8_t bits) { return kernels::float8_to_float<Shape>(bits); }
  static uint8_t store(float value) { return kernels::float_to_float8<Shape>(value); }
};

template <typename Number>
Number combine(int op, Number a, Number b) {
  if constexpr (std::is_integral_v<Number>) {
    using Unsigned = std::make_unsigned_t<Number>;
    const auto x = static_cast<Unsigned>(a);
    const auto y = static_cast<Unsigned>(b);
    if (op == kProd) return static_cast<Number>(uint64_t{x} * y);
    if (op == kMax) return a < b ? b : a;
    if (op == kMin) return b < a ? b : a;
    return static_cast<Number>(x + y);
  } else {
    if (op == kProd) return a * b;
    if (op == kMax) return std::fmax(a, b);
    if (op == kMin) return std::fmin(a, b);
    return a + b;
  }
}

template <typename Format>
void reduce_as(const Reduction& reduction, const std::vector<const std::byte*>& inputs,
               size_t count, std::byte* output) {
  using Stored = typename Format::Stored;
  using Number = typename Format::Number;
  constexpr bool kIsFloat = !std::is_integral_v<Number>;
  const bool divides = reduction.op == kAvg && !kIsFloat && !reduction.is_scaled;
  bool scales = reduction.is_scaled;
  Stored scalar{};
  std::memcpy(&scalar, reduction.scalar, sizeof scalar);
  if (reduction.op == kAvg && kIsFloat && !scales) {
    scales = true;
    scalar = Format::store(Number(1) / static_cast<Number>(inputs.size()));
  }
  for (size_t i = 0; i < count; ++i) {
    Number sum{};
    for (size_t rank = 0; rank < inputs.size(); ++rank) {
      Stored stored{};
      std::memcpy(&stored, inputs[rank] + i * sizeof stored, sizeof stored);
      Number number = Format::load(stored);
      if (scales) number = combine<Number>(kProd, number, Format::load(scalar));
      sum = rank == 0 ? number : combine(reduction.op, sum, number);
    }
    if constexpr (!kIsFloat) {
      if (divides) sum = static_cast<Number>(sum / static_cast<Number>(inputs.size()));
    }
    const Stored stored = Format::store(sum);
    std::memcpy(output + i * sizeof stored, &stored, sizeof stored);
  }
}

}  // namespace

size_t size_of(int type) {
  static constexpr size_t kSizes[kTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kSizes[type];
}

void reduce(int type, const Reduction& reduction, const std::vector<const std::byte*>& inputs,
            size_t count, std::byte* output) {
  using Function = decltype(&reduce_as<Half>);
  static constexpr Function kFunctions[kTypes] = {
      reduce_as<Plain<int8_t>>,
      reduce_as<Plain<uint8_t>>,
      reduce_as<Plain<int32_t>>,
      reduce_as<Plain<uint32_t>>,
      reduce_as<Plain<int64_t>>,
      reduce_as<Plain<uint64_t>>,
      reduce_as<Half>,
      reduce_as<Plain<float>>,
      reduce_as<Plain<double>>,
      reduce_as<BFloat16>,
      reduce_as<Float8<kernels::E4M3FN>>,
      reduce_as<Float8<kernels::E5M2>>,
  };
  kFunctions[type](reduction, inputs, count, output);
}

}  // namespace ciuic::fake_nccl
