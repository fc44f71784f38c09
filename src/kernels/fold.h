// SPDX-License-Identifier: Apache-2.0
// fold.h: the one loop of the SIMD code: it reads a vector of each operand, combines them from left
// to right and writes the result.
//
// A format says how a vector of one dtype is read, computed with and written:
//
//   Vec             what is computed with, one or more vectors of Highway's
//   kElementBytes   bytes of an element; lanes(): elements of a Vec
//   load, store     a Vec from and to memory, which is not aligned
//   sum, product, min, max, band, bor, bxor: of two Vecs, those that the dtype has
//   Single          the same format for one element at a time, which serves short tails best, or
//                   void: a tail goes by way of a vector in memory
//   Scale           AVG: read() scales what is read, finish() what is written
//   kIsHot          whether calls of three operands get code of their own, as those of two do
//
// There is no fused multiply-add: the folder is compiled with -ffp-contract=off, so that every
// target rounds as the scalar reference does. This file is read once for each target, hence no
// `#pragma once`.

#if defined(CIUIC_KERNELS_FOLD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CIUIC_KERNELS_FOLD_H_
#undef CIUIC_KERNELS_FOLD_H_
#else
#define CIUIC_KERNELS_FOLD_H_
#endif

#include "kernels/families.h"
// Above Highway, for which it picks the targets.
#include <hwy/highway.h>

#include <cstring>
#include <limits>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace ciuic::kernels::HWY_NAMESPACE {

#if !CIUIC_BY_REFERENCE

namespace hn = hwy::HWY_NAMESPACE;

// IEEE 754-2019 minimum (or maximum) of vectors of floats: see extreme() in reduce_scalar.cc.
template <bool larger, class V>
HWY_INLINE V extreme(V a, V b) {
  const V nearer = hn::IfThenElse(larger ? hn::Gt(a, b) : hn::Lt(a, b), a, b);  // a NaN: b
  const V equal = larger ? hn::And(a, b) : hn::Or(a, b);
  return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Eq(a, b), equal, nearer));
}

// hn::NaN() has all bits of the mantissa set, and so is not the canonical one.
template <class D, class V>
HWY_INLINE V canonical(D d, V v) {
  const V nan = hn::Set(d, std::numeric_limits<hn::TFromD<D>>::quiet_NaN());
  return hn::IfThenElse(hn::IsNaN(v), nan, v);
}

// Of a full vector, or of a single element. Nothing is aligned: a single one goes by memcpy, since
// the intrinsics for it read and write through a T*.
template <class D>
constexpr bool is_single() {
  return std::is_same_v<D, hn::CappedTag<hn::TFromD<D>, 1>>;
}

template <class D>
HWY_INLINE hn::Vec<D> load_vector(D d, const std::byte* p) {
  using T = hn::TFromD<D>;
  if constexpr (is_single<D>()) {
    T element;
    std::memcpy(&element, p, sizeof element);
    return hn::Set(d, element);
  } else {
    return hn::LoadU(d, reinterpret_cast<const T*>(p));
  }
}

template <class D>
HWY_INLINE void store_vector(hn::Vec<D> v, D d, std::byte* p) {
  using T = hn::TFromD<D>;
  if constexpr (is_single<D>()) {
    const T element = hn::GetLane(v);
    std::memcpy(p, &element, sizeof element);
  } else {
    hn::StoreU(v, d, reinterpret_cast<T*>(p));
  }
}

template <class Format, ReduceOp op, class Vec>
HWY_INLINE Vec combine(Vec a, Vec b) {
  if constexpr (op == ReduceOp::kMin) {
    return Format::min(a, b);
  } else if constexpr (op == ReduceOp::kMax) {
    return Format::max(a, b);
  } else if constexpr (op == ReduceOp::kProduct) {
    return Format::product(a, b);
  } else if constexpr (op == ReduceOp::kBAnd) {
    return Format::band(a, b);
  } else if constexpr (op == ReduceOp::kBOr) {
    return Format::bor(a, b);
  } else if constexpr (op == ReduceOp::kBXor) {
    return Format::bxor(a, b);
  } else {
    return Format::sum(a, b);
  }
}

// `fixed` is the number of operands where it is known at compile time, else 0.
template <class Format, ReduceOp op, size_t fixed>
class Fold {
 public:
  explicit Fold(const Call& call) : call_(call), operands_(call.operands.data()), scale_(call) {}

  void run() const {
    std::byte* target = call_.target;
    const size_t step = Format::lanes() * Format::kElementBytes;
    size_t at = call_.first * Format::kElementBytes;
    const size_t end = at + call_.count * Format::kElementBytes;
    // Two vectors at a time: the second one's loads overlap the first one's arithmetic.
    for (; at + 2 * step <= end; at += 2 * step) {
      Vec x = read(0, at);
      Vec y = read(0, at + step);
      for (size_t j = 1; j < size(); ++j) {
        x = combine<Format, op>(x, read(j, at));
        y = combine<Format, op>(y, read(j, at + step));
      }
      Format::store(finish(x), target + at);
      Format::store(finish(y), target + at + step);
    }
    at = run_each(target, at, end);
    if constexpr (std::is_void_v<typename Format::Single>) {
      if (at < end) run_tail(target, at, end - at);
    } else {
      Fold<typename Format::Single, op, fixed>(call_).run_each(target, at, end);
    }
  }

 private:
  template <class, ReduceOp, size_t>
  friend class Fold;

  using Vec = typename Format::Vec;

  size_t size() const { return fixed != 0 ? fixed : call_.operands.size(); }

  HWY_INLINE Vec scaled(Vec v, size_t j) const {
    if constexpr (op == ReduceOp::kAvg) return scale_.read(v, operands_[j].raw);
    return v;
  }

  HWY_INLINE Vec read(size_t j, size_t at) const {
    return scaled(Format::load(operands_[j].data + at), j);
  }

  HWY_INLINE Vec finish(Vec v) const {
    if constexpr (op == ReduceOp::kAvg) {
      if (call_.final) return scale_.finish(v);
    }
    return v;
  }

  // A vector at a time while a whole one is left; gives the place after the last.
  HWY_INLINE size_t run_each(std::byte* target, size_t at, size_t end) const {
    const size_t step = Format::lanes() * Format::kElementBytes;
    for (; at + step <= end; at += step) {
      Vec x = read(0, at);
      for (size_t j = 1; j < size(); ++j) x = combine<Format, op>(x, read(j, at));
      Format::store(finish(x), target + at);
    }
    return at;
  }

  // Less than a vector is left: nothing beyond it is read or written.
  HWY_NOINLINE void run_tail(std::byte* target, size_t at, size_t bytes) const {
    HWY_ALIGN std::byte vector[HWY_MAX_BYTES] = {};
    std::memcpy(vector, operands_[0].data + at, bytes);
    Vec x = scaled(Format::load(vector), 0);
    for (size_t j = 1; j < size(); ++j) {
      std::memcpy(vector, operands_[j].data + at, bytes);
      x = combine<Format, op>(x, scaled(Format::load(vector), j));
    }
    Format::store(finish(x), vector);
    std::memcpy(target + at, vector, bytes);
  }

  struct NoScale {
    explicit NoScale(const Call& /*call*/) {}
  };

  template <class F>
  static auto scale_of() {
    if constexpr (op == ReduceOp::kAvg) {
      return std::type_identity<typename F::Scale>();
    } else {
      return std::type_identity<NoScale>();
    }
  }

  const Call& call_;
  const Operand* operands_;
  typename decltype(scale_of<Format>())::type scale_;
};

template <class Format, ReduceOp op>
void fold(const Call& call) {
  const size_t operands = call.operands.size();
  if (operands == 2) return Fold<Format, op, 2>(call).run();
  if constexpr (Format::kIsHot) {
    if (operands == 3) return Fold<Format, op, 3>(call).run();
  }
  Fold<Format, op, 0>(call).run();
}

// What does a call, or null where there is nothing.
using Routine = void (*)(const Call&);

// The fold by the one of `ops` that `op` is, or null.
template <class Format, ReduceOp... ops>
HWY_INLINE Routine fold_of(ReduceOp op) {
  Routine routine = nullptr;
  ((op == ops ? void(routine = fold<Format, ops>) : void()), ...);
  return routine;
}

#endif  // !CIUIC_BY_REFERENCE

}  // namespace ciuic::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the guard, once a target
