// SPDX-License-Identifier: Apache-2.0
// reduce_integers.cc: integers of all widths by SIMD, and bool.
//
// Sums and products are those of unsigned numbers, which wrap. An average is a sum that is divided
// block by block, while it still lies in the nearest cache.

#include "kernels/families.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce_integers.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Above what follows, which it includes once more for each target.
#include <hwy/highway.h>

#include <algorithm>

#include "base/assert.h"
#include "kernels/fold.h"

HWY_BEFORE_NAMESPACE();
namespace ciuic::kernels::HWY_NAMESPACE {

#if CIUIC_BY_REFERENCE

void reduce_integers_simd(const Call& call) { reduce_by_reference(call); }

#else

template <typename T, class D = hn::ScalableTag<T>>
struct Integer {
  using Vec = hn::Vec<D>;
  using Single = std::conditional_t<sizeof(T) <= 2, void, Integer<T, hn::CappedTag<T, 1>>>;
  static constexpr size_t kElementBytes = sizeof(T);
  static constexpr bool kIsHot = sizeof(T) >= 4;

  static size_t lanes() { return hn::Lanes(D()); }
  static Vec load(const std::byte* p) { return load_vector(D(), p); }
  static void store(Vec v, std::byte* p) { store_vector(v, D(), p); }

  static Vec sum(Vec a, Vec b) { return hn::Add(a, b); }
  static Vec min(Vec a, Vec b) { return hn::Min(a, b); }
  static Vec max(Vec a, Vec b) { return hn::Max(a, b); }
  static Vec band(Vec a, Vec b) { return hn::And(a, b); }
  static Vec bor(Vec a, Vec b) { return hn::Or(a, b); }
  static Vec bxor(Vec a, Vec b) { return hn::Xor(a, b); }
  static Vec product(Vec a, Vec b) {
    if constexpr (sizeof(T) == 8) {
      return product_of_64_bits(a, b);
    } else if constexpr (sizeof(T) == 1) {
      return product_of_8_bits(a, b);
    } else {
      return hn::Mul(a, b);
    }
  }

 private:
  // (2^32 h + l) (2^32 H + L) = 2^32 (h L + l H) + l L, the rest being beyond 64 bits.
  static Vec product_of_64_bits(Vec a, Vec b) {
    const hn::Repartition<uint32_t, D> d32;
    const auto low_a = hn::BitCast(d32, a);
    const auto low_b = hn::BitCast(d32, b);
    const auto high_a = hn::BitCast(d32, hn::ShiftRight<32>(a));
    const auto high_b = hn::BitCast(d32, hn::ShiftRight<32>(b));
    const auto cross = hn::Add(hn::MulEven(high_a, low_b), hn::MulEven(low_a, high_b));
    return hn::Add(hn::ShiftLeft<32>(cross), hn::MulEven(low_a, low_b));
  }

  // No target multiplies bytes. The low half of a 16-bit product knows nothing of the high bytes.
  static Vec product_of_8_bits(Vec a, Vec b) {
    const hn::Repartition<uint16_t, D> d16;
    const auto x = hn::BitCast(d16, a);
    const auto y = hn::BitCast(d16, b);
    const auto even = hn::And(hn::Mul(x, y), hn::Set(d16, 0xFF));
    const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(x), hn::ShiftRight<8>(y)));
    return hn::BitCast(D(), hn::Or(even, odd));
  }
};

// A byte that is not 0 is true, and true is written as 1.
struct Bool : Integer<uint8_t> {
  static Vec load(const std::byte* p) {
    const hn::ScalableTag<uint8_t> d;
    return hn::Min(load_vector(d, p), hn::Set(d, 1));
  }
};

// The even elements of a vector and its odd ones, each in a lane of twice its width.
template <typename T>
struct Halves {
  static constexpr int kBits = 8 * sizeof(T);
  using D = hn::ScalableTag<T>;
  using Vec = hn::Vec<D>;
  using WideTag = hn::RepartitionToWide<D>;
  using Wide = hn::Vec<WideTag>;

  static Wide even(Vec v) {  // a signed number keeps its sign
    return hn::ShiftRight<kBits>(hn::ShiftLeft<kBits>(hn::BitCast(WideTag(), v)));
  }
  static Wide odd(Vec v) { return hn::ShiftRight<kBits>(hn::BitCast(WideTag(), v)); }
  static Vec join(Wide even, Wide odd) {
    const D d;
    return hn::OddEven(hn::BitCast(d, hn::ShiftLeft<kBits>(odd)), hn::BitCast(d, even));
  }
};

// Divides what is known to fit in half a lane.
template <typename Wide>
struct Divider {
  using D = hn::ScalableTag<Wide>;
  using Vec = hn::Vec<D>;
  using Float = std::conditional_t<sizeof(Wide) == 8, double, float>;
  using FloatTag = hn::ScalableTag<Float>;

  explicit Divider(int ranks)
      : reciprocal(static_cast<uint16_t>(65536 / ranks + 1)), divisor(static_cast<Float>(ranks)) {}

  Vec divided(Vec v) const {
    if constexpr (sizeof(Wide) == 2) {
      return by_reciprocal(v);
    } else {
      return by_float(v);
    }
  }

 private:
  // x / n is the high half of x (2^16 / n + 1): x < 2^8 and n < 2^8 leave the error under 1/n, and
  // from n = 2^8 on it is 0.
  Vec by_reciprocal(Vec v) const {
    const hn::ScalableTag<uint16_t> d16;
    const auto factor = hn::Set(d16, reciprocal);
    if constexpr (std::is_unsigned_v<Wide>) {
      return hn::MulHigh(v, factor);
    } else {
      const auto negative = hn::BroadcastSignBit(v);
      const auto magnitude = hn::BitCast(d16, hn::Abs(v));
      const Vec quotient = hn::BitCast(D(), hn::MulHigh(magnitude, factor));
      return hn::Sub(hn::Xor(quotient, negative), negative);
    }
  }

  // Exact: different quotients of 16 bits (of 32) are 1/n apart or more, far more than the rounding
  // of float32 (of float64).
  Vec by_float(Vec v) const {
    const FloatTag f;
    const auto ranks = hn::Set(f, divisor);
    if constexpr (sizeof(Wide) == 4) {
      const hn::RebindToSigned<D> i;
      const auto quotient = hn::Div(hn::ConvertTo(f, hn::BitCast(i, v)), ranks);
      return hn::BitCast(D(), hn::ConvertTo(i, quotient));
    } else {
      // Next to 1.5 * 2^52 a float64's last bits are those of a whole number.
      const auto magic = hn::Set(f, 0x1.8p52);
      const Vec bits = hn::BitCast(D(), magic);
      const auto exact = hn::Sub(hn::BitCast(f, hn::Add(v, bits)), magic);
      const auto quotient = hn::Add(hn::Trunc(hn::Div(exact, ranks)), magic);
      return hn::Sub(hn::BitCast(D(), quotient), bits);
    }
  }

  uint16_t reciprocal;
  Float divisor;
};

// Of signed numbers of 32 bits no lane of 64 is needed: there are instructions from them to
// float64.
inline hn::Vec<hn::ScalableTag<int32_t>> divided_by_halves(hn::Vec<hn::ScalableTag<int32_t>> v,
                                                           int divisor) {
  const hn::ScalableTag<double> f;
  const hn::Rebind<int32_t, decltype(f)> half;
  const auto ranks = hn::Set(f, divisor);
  const auto low = hn::Div(hn::PromoteTo(f, hn::LowerHalf(half, v)), ranks);
  const auto high = hn::Div(hn::PromoteTo(f, hn::UpperHalf(half, v)), ranks);
  return hn::Combine(hn::ScalableTag<int32_t>(), hn::DemoteTo(half, high), hn::DemoteTo(half, low));
}

// Divides in place; truncates toward zero.
template <typename T>
void divide(std::byte* at, size_t count, int ranks) {
  if constexpr (sizeof(T) == 8) {
    for (size_t i = 0; i < count; ++i) {
      T number;
      std::memcpy(&number, at + i * sizeof number, sizeof number);
      number /= static_cast<T>(ranks);
      std::memcpy(at + i * sizeof number, &number, sizeof number);
    }
  } else {
    using Half = Halves<T>;
    const typename Half::D d;
    const Divider<hn::TFromD<typename Half::WideTag>> divider(ranks);
    const auto quotient = [&divider, ranks](typename Half::Vec v) HWY_ATTR {
      if constexpr (std::is_same_v<T, int32_t>) {
        return divided_by_halves(v, ranks);
      } else {
        return Half::join(divider.divided(Half::even(v)), divider.divided(Half::odd(v)));
      }
    };
    const size_t step = hn::Lanes(d);
    for (; count >= step; count -= step, at += step * sizeof(T)) {
      store_vector(quotient(load_vector(d, at)), d, at);
    }
    HWY_ALIGN std::byte vector[HWY_MAX_BYTES] = {};
    if (count == 0) return;
    std::memcpy(vector, at, count * sizeof(T));
    store_vector(quotient(load_vector(d, vector)), d, vector);
    std::memcpy(at, vector, count * sizeof(T));
  }
}

template <typename T>
void average(const Call& call) {
  using Unsigned = Integer<std::make_unsigned_t<T>>;
  if (!call.final || call.reduction.ranks == 1) return fold<Unsigned, ReduceOp::kSum>(call);
  constexpr size_t kBlock = (8 << 10) / sizeof(T);
  Call block = call;
  for (size_t first = 0; first < call.count; first += kBlock) {
    block.first = first;
    block.count = std::min(kBlock, call.count - first);
    fold<Unsigned, ReduceOp::kSum>(block);
    divide<T>(call.target + first * sizeof(T), block.count, call.reduction.ranks);
  }
}

// Bits do not ask for the width of what they belong to.
template <ReduceOp op>
void fold_bits(const Call& call) {
  Call bytes = call;
  bytes.count *= size_of(call.reduction.dtype);
  fold<Integer<uint8_t>, op>(bytes);
}

template <typename T>
Routine routine_of(ReduceOp op) {
  using Unsigned = Integer<std::make_unsigned_t<T>>;
  switch (op) {
    case ReduceOp::kSum: return fold<Unsigned, ReduceOp::kSum>;
    case ReduceOp::kAvg: return average<T>;
    case ReduceOp::kMin: return fold<Integer<T>, ReduceOp::kMin>;
    case ReduceOp::kMax: return fold<Integer<T>, ReduceOp::kMax>;
    case ReduceOp::kProduct: return fold<Unsigned, ReduceOp::kProduct>;
    case ReduceOp::kBAnd: return fold_bits<ReduceOp::kBAnd>;
    case ReduceOp::kBOr: return fold_bits<ReduceOp::kBOr>;
    case ReduceOp::kBXor: return fold_bits<ReduceOp::kBXor>;
  }
  return nullptr;
}

Routine bool_routine(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBOr: return fold<Bool, ReduceOp::kBOr>;
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBAnd: return fold<Bool, ReduceOp::kBAnd>;
    case ReduceOp::kBXor: return fold<Bool, ReduceOp::kBXor>;
    case ReduceOp::kAvg: break;
  }
  return nullptr;
}

HWY_INLINE Routine integer_routine(const Reduction& reduction) {
  switch (reduction.dtype) {
    case DataType::kInt8: return routine_of<int8_t>(reduction.op);
    case DataType::kInt16: return routine_of<int16_t>(reduction.op);
    case DataType::kInt32: return routine_of<int32_t>(reduction.op);
    case DataType::kInt64: return routine_of<int64_t>(reduction.op);
    case DataType::kUInt8: return routine_of<uint8_t>(reduction.op);
    case DataType::kUInt16: return routine_of<uint16_t>(reduction.op);
    case DataType::kUInt32: return routine_of<uint32_t>(reduction.op);
    case DataType::kUInt64: return routine_of<uint64_t>(reduction.op);
    case DataType::kBool: return bool_routine(reduction.op);
    default: return nullptr;
  }
}

void reduce_integers_simd(const Call& call) {
  const Routine routine = integer_routine(call.reduction);
  CIUIC_ASSERT(routine != nullptr);
  routine(call);
}

#endif  // CIUIC_BY_REFERENCE

}  // namespace ciuic::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ciuic::kernels {

HWY_EXPORT(reduce_integers_simd);

void reduce_integers(const Call& call) { HWY_DYNAMIC_DISPATCH(reduce_integers_simd)(call); }

}  // namespace ciuic::kernels

#endif  // HWY_ONCE
