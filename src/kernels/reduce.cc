// SPDX-License-Identifier: Apache-2.0
// reduce.cc: reduction by SIMD. This file is compiled once for each instruction set that Highway
// knows for the architecture; at run time the best one that the processor has is taken.
//
// A format says how a vector of one dtype is read, computed with and written. fold() is the one
// loop: it reads a vector of each operand, combines them from left to right and writes the result.
// float16 and bfloat16 vectors become two of float32. There is no fused multiply-add: the folder is
// compiled with -ffp-contract=off, so that every target rounds as the scalar reference does.

// Scalable vectors cannot be members of a struct, as they are here; NEON serves those processors.
// Those with SSSE3 and no SSE4 are too old to be worth their share of the time to compile.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SSSE3)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Above what follows, which it includes once more for each target.
#include <hwy/highway.h>

#include <cstring>
#include <limits>

#include "base/assert.h"
#include "kernels/average.h"
#include "kernels/reduce.h"

HWY_BEFORE_NAMESPACE();
namespace ciuic::kernels::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void reduce_simd(const Reduction& reduction, std::span<const Operand> operands, bool final,
                 std::byte* target, int64_t count) {
  reduce_scalar(reduction, operands, final, target, count);
}

#else

namespace hn = hwy::HWY_NAMESPACE;

// One call's arguments, the same for every format.
struct Call {
  std::span<const Operand> operands;
  bool final;
  int ranks;
  std::byte* target;
  size_t count;
};

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

// float32 and float64.
template <typename T, class D = hn::ScalableTag<T>>
struct Wide {
  using Vec = hn::Vec<D>;
  using Single = Wide<T, hn::CappedTag<T, 1>>;
  static constexpr size_t kElementBytes = sizeof(T);

  static size_t lanes() { return hn::Lanes(D()); }
  static Vec load(const std::byte* p) { return load_vector(D(), p); }
  static void store(Vec v, std::byte* p) { store_vector(canonical(D(), v), D(), p); }

  static Vec sum(Vec a, Vec b) { return hn::Add(a, b); }
  static Vec product(Vec a, Vec b) { return hn::Mul(a, b); }
  static Vec min(Vec a, Vec b) { return extreme<false>(a, b); }
  static Vec max(Vec a, Vec b) { return extreme<true>(a, b); }

  struct Scale {
    explicit Scale(const Call& call) : factors(average_factors<T>(call.ranks)) {}
    Vec read(Vec v, bool raw) const { return hn::Mul(v, hn::Set(D(), raw ? factors.raw : T{1})); }
    Vec finish(Vec v) const { return hn::Mul(v, hn::Set(D(), factors.final)); }
    AverageFactors<T> factors;
  };
};

// Where 16-bit floats are computed: two vectors of float32.
using FloatTag = hn::ScalableTag<float>;
using Float = hn::Vec<FloatTag>;
using BitsTag = hn::ScalableTag<uint32_t>;
using Bits = hn::Vec<BitsTag>;

struct FloatPair {
  Float a;
  Float b;
};

// Even and odd elements apart, which needs no shuffle on any target: the halves of 32-bit words.
HWY_INLINE Bits load_words(const std::byte* p) {
  return hn::LoadU(BitsTag(), reinterpret_cast<const uint32_t*>(p));
}
HWY_INLINE void store_words(Bits even, Bits odd, std::byte* p) {
  const Bits words = hn::Or(even, hn::ShiftLeft<16>(odd));
  hn::StoreU(words, BitsTag(), reinterpret_cast<uint32_t*>(p));
}

struct BFloat16Codec {
  static FloatPair load(const std::byte* p) {
    const Bits words = load_words(p);
    const FloatTag d;
    return {hn::BitCast(d, hn::ShiftLeft<16>(words)),
            hn::BitCast(d, hn::And(words, hn::Set(BitsTag(), 0xFFFF0000)))};
  }
  static void store(FloatPair v, std::byte* p) { store_words(narrow(v.a), narrow(v.b), p); }

 private:
  static Bits narrow(Float v) {
    const BitsTag d;
    const Bits bits = hn::BitCast(d, v);
    const Bits odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
    return hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7FFF))));
  }
};

// Processors with SSE4 and no AVX2 (before 2013) have no instruction for float16, and Highway's own
// code is wrong for infinity and NaN: they take the reference.
#define CIUIC_HAS_FLOAT16 (HWY_TARGET != HWY_SSE4)

#if CIUIC_HAS_FLOAT16

struct HalfCodec {
  using Tag = hn::Rebind<hwy::float16_t, FloatTag>;

  static FloatPair load(const std::byte* p) {
    const auto* halves = reinterpret_cast<const hwy::float16_t*>(p);
    const FloatTag d;
    return {hn::PromoteTo(d, hn::LoadU(Tag(), halves)),
            hn::PromoteTo(d, hn::LoadU(Tag(), halves + hn::Lanes(d)))};
  }
  static void store(FloatPair v, std::byte* p) {
    auto* halves = reinterpret_cast<hwy::float16_t*>(p);
    hn::StoreU(hn::DemoteTo(Tag(), v.a), Tag(), halves);
    hn::StoreU(hn::DemoteTo(Tag(), v.b), Tag(), halves + hn::Lanes(FloatTag()));
  }
};

#endif  // CIUIC_HAS_FLOAT16

template <class Codec>
struct Narrow {
  using Vec = FloatPair;
  using Single = void;
  static constexpr size_t kElementBytes = 2;

  static size_t lanes() { return 2 * hn::Lanes(FloatTag()); }
  static Vec load(const std::byte* p) { return Codec::load(p); }
  static void store(Vec v, std::byte* p) {
    Codec::store({canonical(FloatTag(), v.a), canonical(FloatTag(), v.b)}, p);
  }

  static Vec sum(Vec x, Vec y) { return {hn::Add(x.a, y.a), hn::Add(x.b, y.b)}; }
  static Vec product(Vec x, Vec y) { return {hn::Mul(x.a, y.a), hn::Mul(x.b, y.b)}; }
  static Vec min(Vec x, Vec y) { return {extreme<false>(x.a, y.a), extreme<false>(x.b, y.b)}; }
  static Vec max(Vec x, Vec y) { return {extreme<true>(x.a, y.a), extreme<true>(x.b, y.b)}; }

  struct Scale {
    explicit Scale(const Call& call) : raw_factor(average_factors_of_small(call.ranks).raw) {}
    Vec read(Vec v, bool raw) const {
      const Float factor = hn::Set(FloatTag(), raw ? raw_factor : 1.0F);
      return {hn::Mul(v.a, factor), hn::Mul(v.b, factor)};
    }
    Vec finish(Vec v) const { return v; }
    float raw_factor;
  };
};

// Integers are added and multiplied as unsigned ones, which wrap.
template <typename T, class D = hn::ScalableTag<T>>
struct Integer {
  using Vec = hn::Vec<D>;
  using Single = std::conditional_t<sizeof(T) == 1, void, Integer<T, hn::CappedTag<T, 1>>>;
  static constexpr size_t kElementBytes = sizeof(T);

  static size_t lanes() { return hn::Lanes(D()); }
  static Vec load(const std::byte* p) { return load_vector(D(), p); }
  static void store(Vec v, std::byte* p) { store_vector(v, D(), p); }

  static Vec sum(Vec a, Vec b) { return hn::Add(a, b); }
  static Vec min(Vec a, Vec b) { return hn::Min(a, b); }
  static Vec max(Vec a, Vec b) { return hn::Max(a, b); }
  static Vec product(Vec a, Vec b) {
    if constexpr (sizeof(T) == 4) {
      return hn::Mul(a, b);
    } else if constexpr (sizeof(T) == 8) {
      return product_of_64_bits(a, b);
    } else {
      return product_of_8_bits(a, b);
    }
  }

  struct Scale {
    explicit Scale(const Call& call) : ranks(call.ranks) {}
    Vec read(Vec v, bool /*raw*/) const { return v; }
    Vec finish(Vec v) const {
      if (ranks == 1) return v;
      if constexpr (sizeof(T) == 1) {
        return quotient_of_8_bits(v, ranks);
      } else if constexpr (sizeof(T) == 4 && !is_single<D>()) {
        return quotient_of_32_bits(v, ranks);
      } else {
        return quotient_one_by_one(v, ranks);
      }
    }
    int ranks;
  };

 private:
  // (2^32 h + l) (2^32 H + L) = 2^32 (h L + l H) + l L, the rest being beyond 64 bits.
  static Vec product_of_64_bits(Vec a, Vec b) {
    const hn::Repartition<uint32_t, D> d32;
    const hn::RebindToUnsigned<D> d64;
    const auto low_a = hn::BitCast(d32, a);
    const auto low_b = hn::BitCast(d32, b);
    const auto high_a = hn::BitCast(d32, hn::ShiftRight<32>(hn::BitCast(d64, a)));
    const auto high_b = hn::BitCast(d32, hn::ShiftRight<32>(hn::BitCast(d64, b)));
    const auto cross = hn::Add(hn::MulEven(high_a, low_b), hn::MulEven(low_a, high_b));
    return hn::BitCast(D(), hn::Add(hn::ShiftLeft<32>(cross), hn::MulEven(low_a, low_b)));
  }

  // No target multiplies bytes. The low half of a 16-bit product knows nothing of the high bytes.
  static Vec product_of_8_bits(Vec a, Vec b) {
    const hn::ScalableTag<uint16_t> d16;
    const auto x = hn::BitCast(d16, a);
    const auto y = hn::BitCast(d16, b);
    const auto even = hn::And(hn::Mul(x, y), hn::Set(d16, 0xFF));
    const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(x), hn::ShiftRight<8>(y)));
    return hn::BitCast(D(), hn::Or(even, odd));
  }

  // Exact: two different quotients are 1/divisor apart or more, far more than float64's rounding.
  static Vec quotient_of_32_bits(Vec v, int divisor) {
    const hn::ScalableTag<double> d64;
    const hn::Rebind<int32_t, decltype(d64)> half;
    const auto ranks = hn::Set(d64, divisor);
    const auto low = hn::Div(hn::PromoteTo(d64, hn::LowerHalf(half, v)), ranks);
    const auto high = hn::Div(hn::PromoteTo(d64, hn::UpperHalf(half, v)), ranks);
    return hn::Combine(D(), hn::DemoteTo(half, high), hn::DemoteTo(half, low));
  }

  static Vec quotient_one_by_one(Vec v, int divisor) {
    HWY_ALIGN T numbers[HWY_MAX_BYTES / sizeof(T)];
    hn::Store(v, D(), numbers);
    for (size_t i = 0; i < lanes(); ++i) numbers[i] = static_cast<T>(numbers[i] / divisor);
    return hn::Load(D(), numbers);
  }

  // x / n is the high half of x (2^16 / n + 1): x < 2^8 and n < 2^8 leave the error under 1/n, and
  // from n = 2^8 on it is 0.
  static Vec quotient_of_8_bits(Vec v, int divisor) {
    const hn::ScalableTag<uint16_t> d16;
    const auto reciprocal = hn::Set(d16, static_cast<uint16_t>(65536 / divisor + 1));
    const auto x = hn::BitCast(d16, v);
    const auto even = hn::MulHigh(hn::And(x, hn::Set(d16, 0xFF)), reciprocal);
    const auto odd = hn::MulHigh(hn::ShiftRight<8>(x), reciprocal);
    return hn::BitCast(D(), hn::Or(even, hn::ShiftLeft<8>(odd)));
  }
};

template <class Format, ReduceOp op, class Vec>
HWY_INLINE Vec combine(Vec a, Vec b) {
  if constexpr (op == ReduceOp::kMin) {
    return Format::min(a, b);
  } else if constexpr (op == ReduceOp::kMax) {
    return Format::max(a, b);
  } else if constexpr (op == ReduceOp::kProduct) {
    return Format::product(a, b);
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
    const size_t end = call_.count * Format::kElementBytes;
    size_t at = 0;
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

  const Call& call_;
  const Operand* operands_;
  std::conditional_t<op == ReduceOp::kAvg, typename Format::Scale, NoScale> scale_;
};

template <class Format, ReduceOp op>
void fold(const Call& call) {
  switch (call.operands.size()) {
    case 2: return Fold<Format, op, 2>(call).run();
    case 3: return Fold<Format, op, 3>(call).run();
    default: return Fold<Format, op, 0>(call).run();
  }
}

template <class Format>
void reduce_format(ReduceOp op, const Call& call) {
  switch (op) {
    case ReduceOp::kSum: return fold<Format, ReduceOp::kSum>(call);
    case ReduceOp::kAvg: return fold<Format, ReduceOp::kAvg>(call);
    case ReduceOp::kMin: return fold<Format, ReduceOp::kMin>(call);
    case ReduceOp::kMax: return fold<Format, ReduceOp::kMax>(call);
    case ReduceOp::kProduct: return fold<Format, ReduceOp::kProduct>(call);
    default: break;
  }
}

void reduce_simd(const Reduction& reduction, std::span<const Operand> operands, bool final,
                 std::byte* target, int64_t count) {
  if (reduction.op >= ReduceOp::kBAnd) {
    return reduce_scalar(reduction, operands, final, target, count);
  }
  const Call call = {operands, final, reduction.ranks, target, static_cast<size_t>(count)};
  switch (reduction.dtype) {
    case DataType::kFloat32: return reduce_format<Wide<float>>(reduction.op, call);
    case DataType::kFloat64: return reduce_format<Wide<double>>(reduction.op, call);
#if CIUIC_HAS_FLOAT16
    case DataType::kFloat16: return reduce_format<Narrow<HalfCodec>>(reduction.op, call);
#else
    case DataType::kFloat16: return reduce_scalar(reduction, operands, final, target, count);
#endif
    case DataType::kBFloat16: return reduce_format<Narrow<BFloat16Codec>>(reduction.op, call);
    case DataType::kInt32: return reduce_format<Integer<int32_t>>(reduction.op, call);
    case DataType::kInt64: return reduce_format<Integer<int64_t>>(reduction.op, call);
    case DataType::kUInt8: return reduce_format<Integer<uint8_t>>(reduction.op, call);
    default: return reduce_scalar(reduction, operands, final, target, count);
  }
}

#undef CIUIC_HAS_FLOAT16
#endif  // HWY_TARGET == HWY_SCALAR

const char* name_of_target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace ciuic::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ciuic::kernels {

HWY_EXPORT(reduce_simd);
HWY_EXPORT(name_of_target);

void reduce(const Reduction& reduction, std::span<const Operand> operands, bool final,
            std::byte* target, int64_t count) {
  CIUIC_ASSERT(!operands.empty() && count >= 0 && reduction.ranks >= 1);
  HWY_DYNAMIC_DISPATCH(reduce_simd)(reduction, operands, final, target, count);
}

const char* simd_target() { return HWY_DYNAMIC_DISPATCH(name_of_target)(); }

}  // namespace ciuic::kernels

#endif  // HWY_ONCE
