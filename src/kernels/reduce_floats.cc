// SPDX-License-Identifier: Apache-2.0
// reduce_floats.cc: float32 and float64 by SIMD, and complex numbers, which are two of them each.

#include "kernels/families.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce_floats.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Above what follows, which it includes once more for each target.
#include <hwy/highway.h>

#include "base/assert.h"
#include "kernels/average.h"
#include "kernels/fold.h"

HWY_BEFORE_NAMESPACE();
namespace ciuic::kernels::HWY_NAMESPACE {

#if CIUIC_BY_REFERENCE

void reduce_floats_simd(const Call& call) { reduce_by_reference(call); }

#else

template <typename T, class D = hn::ScalableTag<T>>
struct Wide {
  using Vec = hn::Vec<D>;
  using Single = Wide<T, hn::CappedTag<T, 1>>;
  static constexpr size_t kElementBytes = sizeof(T);
  static constexpr bool kIsHot = true;

  static size_t lanes() { return hn::Lanes(D()); }
  static Vec load(const std::byte* p) { return load_vector(D(), p); }
  static void store(Vec v, std::byte* p) { store_vector(canonical(D(), v), D(), p); }

  static Vec sum(Vec a, Vec b) { return hn::Add(a, b); }
  static Vec product(Vec a, Vec b) { return hn::Mul(a, b); }
  static Vec min(Vec a, Vec b) { return extreme<false>(a, b); }
  static Vec max(Vec a, Vec b) { return extreme<true>(a, b); }

  struct Scale {
    explicit Scale(const Call& call) : factors(average_factors<T>(call.reduction.ranks)) {}
    Vec read(Vec v, bool raw) const { return hn::Mul(v, hn::Set(D(), raw ? factors.raw : T{1})); }
    Vec finish(Vec v) const { return hn::Mul(v, hn::Set(D(), factors.final)); }
    AverageFactors<T> factors;
  };
};

// Products of complex numbers: real and imaginary parts take turns in a vector.
template <typename T>
struct Complex {
  using D = hn::ScalableTag<T>;
  using Vec = hn::Vec<D>;
  using Single = void;
  static constexpr size_t kElementBytes = 2 * sizeof(T);
  static constexpr bool kIsHot = false;

  static size_t lanes() { return hn::Lanes(D()) / 2; }
  static Vec load(const std::byte* p) { return load_vector(D(), p); }
  static void store(Vec v, std::byte* p) { store_vector(canonical(D(), v), D(), p); }

  // (a + bi) (c + di) = (ac - bd) + (ad + bc) i
  static Vec product(Vec x, Vec y) {
    const Vec first = hn::Mul(hn::DupEven(x), y);                     // ac, ad
    const Vec second = hn::Mul(hn::DupOdd(x), hn::Reverse2(D(), y));  // bd, bc
    return hn::OddEven(hn::Add(first, second), hn::Sub(first, second));
  }
};

template <typename T>
HWY_INLINE Routine wide_routine(ReduceOp op) {
  return fold_of<Wide<T>, ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax,
                 ReduceOp::kProduct>(op);
}

// Added up and averaged, complex numbers are floats, twice as many.
template <typename T, ReduceOp op>
void fold_parts(const Call& call) {
  Call parts = call;
  parts.count *= 2;
  fold<Wide<T>, op>(parts);
}

template <typename T>
Routine complex_routine(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return fold_parts<T, ReduceOp::kSum>;
    case ReduceOp::kAvg: return fold_parts<T, ReduceOp::kAvg>;
    case ReduceOp::kProduct: return fold<Complex<T>, ReduceOp::kProduct>;
    default: return nullptr;
  }
}

HWY_INLINE Routine float_routine(const Reduction& reduction) {
  switch (reduction.dtype) {
    case DataType::kFloat32: return wide_routine<float>(reduction.op);
    case DataType::kFloat64: return wide_routine<double>(reduction.op);
    case DataType::kComplex64: return complex_routine<float>(reduction.op);
    case DataType::kComplex128: return complex_routine<double>(reduction.op);
    default: return nullptr;
  }
}

void reduce_floats_simd(const Call& call) {
  const Routine routine = float_routine(call.reduction);
  CIUIC_ASSERT(routine != nullptr);
  routine(call);
}

#endif  // CIUIC_BY_REFERENCE

const char* name_of_target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace ciuic::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ciuic::kernels {

HWY_EXPORT(reduce_floats_simd);
HWY_EXPORT(name_of_target);

void reduce_floats(const Call& call) { HWY_DYNAMIC_DISPATCH(reduce_floats_simd)(call); }

const char* simd_target() { return HWY_DYNAMIC_DISPATCH(name_of_target)(); }

}  // namespace ciuic::kernels

#endif  // HWY_ONCE
