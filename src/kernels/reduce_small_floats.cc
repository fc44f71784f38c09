// SPDX-License-Identifier: Apache-2.0
// reduce_small_floats.cc: 16-bit and 8-bit floats by SIMD, computed in float32 and rounded once.
//
// A vector of them becomes two or four of float32.

#include "kernels/families.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce_small_floats.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// Above what follows, which it includes once more for each target.
#include <hwy/highway.h>

#include <utility>

#include "base/assert.h"
#include "kernels/average.h"
#include "kernels/float8.h"
#include "kernels/fold.h"

HWY_BEFORE_NAMESPACE();
namespace ciuic::kernels::HWY_NAMESPACE {

#if CIUIC_BY_REFERENCE

void reduce_small_floats_simd(const Call& call) { reduce_by_reference(call); }

#else

using FloatTag = hn::ScalableTag<float>;
using Float = hn::Vec<FloatTag>;
using BitsTag = hn::ScalableTag<uint32_t>;
using Bits = hn::Vec<BitsTag>;

// `count` vectors of float32.
template <int count>
struct Floats {
  Float part[count];
};

// Of bfloat16 they hold every second element each, which needs no shuffle on any target.
HWY_INLINE Bits load_words(const std::byte* p) {
  return hn::LoadU(BitsTag(), reinterpret_cast<const uint32_t*>(p));
}
HWY_INLINE void store_words(Bits words, std::byte* p) {
  hn::StoreU(words, BitsTag(), reinterpret_cast<uint32_t*>(p));
}

struct BFloat16Codec {
  static constexpr int kParts = 2;

  static Floats<2> load(const std::byte* p) {
    const Bits words = load_words(p);
    const FloatTag d;
    return {{hn::BitCast(d, hn::ShiftLeft<16>(words)),
             hn::BitCast(d, hn::And(words, hn::Set(BitsTag(), 0xFFFF0000)))}};
  }
  static void store(const Floats<2>& v, std::byte* p) {
    store_words(hn::Or(narrow(v.part[0]), hn::ShiftLeft<16>(narrow(v.part[1]))), p);
  }

 private:
  static Bits narrow(Float v) {
    const BitsTag d;
    const Bits bits = hn::BitCast(d, v);
    const Bits odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
    return hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7FFF))));
  }
};

// Processors with SSE4 and no AVX2 (before 2013) have no instruction for float16, and Highway's own
// code is wrong for infinity and NaN: they take the reference, also for 8 bits.
#define CIUIC_HAS_FLOAT16 (HWY_TARGET != HWY_SSE4)

#if CIUIC_HAS_FLOAT16

struct HalfCodec {
  static constexpr int kParts = 2;
  using Tag = hn::Rebind<hwy::float16_t, FloatTag>;

  static Floats<2> load(const std::byte* p) {
    const auto* halves = reinterpret_cast<const hwy::float16_t*>(p);
    const FloatTag d;
    return {{hn::PromoteTo(d, hn::LoadU(Tag(), halves)),
             hn::PromoteTo(d, hn::LoadU(Tag(), halves + hn::Lanes(d)))}};
  }
  static void store(const Floats<2>& v, std::byte* p) {
    auto* halves = reinterpret_cast<hwy::float16_t*>(p);
    hn::StoreU(hn::DemoteTo(Tag(), v.part[0]), Tag(), halves);
    hn::StoreU(hn::DemoteTo(Tag(), v.part[1]), Tag(), halves + hn::Lanes(FloatTag()));
  }
};

// Eight bits go by way of float16, which holds all of them, 1/256 of them where its exponents end
// earlier, and is converted whatever the processor's flush-to-zero modes are. See float8.h for the
// same, one number at a time.
template <class Shape>
struct Float8Codec {
  static constexpr int kParts = 4;

  static HWY_INLINE Floats<4> load(const std::byte* p) {
    const auto* bytes = reinterpret_cast<const int8_t*>(p);
    const size_t lanes = hn::Lanes(FloatTag());
    return {{widen(hn::LoadU(ByteTag(), bytes)), widen(hn::LoadU(ByteTag(), bytes + lanes)),
             widen(hn::LoadU(ByteTag(), bytes + 2 * lanes)),
             widen(hn::LoadU(ByteTag(), bytes + 3 * lanes))}};
  }
  static void store(const Floats<4>& v, std::byte* p) {
    auto* bytes = reinterpret_cast<uint8_t*>(p);
    const hn::Rebind<uint8_t, FloatTag> d;
    const size_t lanes = hn::Lanes(FloatTag());
    hn::StoreU(narrow(v.part[0]), d, bytes);
    hn::StoreU(narrow(v.part[1]), d, bytes + lanes);
    hn::StoreU(narrow(v.part[2]), d, bytes + 2 * lanes);
    hn::StoreU(narrow(v.part[3]), d, bytes + 3 * lanes);
  }

 private:
  static constexpr bool kIsE4M3 = std::is_same_v<Shape, E4M3FN>;
  using ByteTag = hn::Rebind<int8_t, FloatTag>;
  using WordTag = hn::Rebind<int16_t, FloatTag>;
  using HalfTag = hn::Rebind<hwy::float16_t, FloatTag>;

  static HWY_INLINE Float widen(hn::Vec<ByteTag> codes) {
    const WordTag w;
    const FloatTag f;
    const auto words = hn::PromoteTo(w, codes);  // above the seven bits there are signs
    if constexpr (!kIsE4M3) {
      return hn::PromoteTo(f, hn::BitCast(HalfTag(), hn::ShiftLeft<8>(words)));
    } else {
      const auto halves = hn::AndNot(hn::Set(w, 0x4000), hn::ShiftLeft<7>(words));
      const Float v = hn::Mul(hn::PromoteTo(f, hn::BitCast(HalfTag(), halves)), hn::Set(f, 256.0F));
      const auto is_number = hn::Lt(hn::Abs(v), hn::Set(f, 480.0F));
      return hn::IfThenElse(is_number, v, hn::Set(f, std::numeric_limits<float>::quiet_NaN()));
    }
  }

  // Next to 2^23 times its last bit that stays, a number is rounded to that bit, to even.
  static HWY_INLINE auto narrow(Float v) {
    const BitsTag d;
    const FloatTag f;
    constexpr uint32_t kLeastNormal = (127 - Shape::kBias + 1) << 23;  // as float32
    constexpr uint32_t kUp = (23 - Shape::kMantissaBits) << 23;
    const Float magnitude = hn::Abs(v);
    const Bits exponent = hn::And(hn::BitCast(d, magnitude), hn::Set(d, 0x7F800000));
    const Bits least = hn::Max(hn::Add(exponent, hn::Set(d, kUp)), hn::Set(d, kLeastNormal + kUp));
    const Float magic = hn::BitCast(f, hn::Min(least, hn::Set(d, 0x7F000000)));  // 2^127
    const Float rounded = hn::Sub(hn::Add(magnitude, magic), magic);
    return code_of(hn::CopySignToAbs(rounded, v));
  }

  // Of what is a number of this format, or too large.
  static HWY_INLINE auto code_of(Float v) {
    const hn::Rebind<uint8_t, FloatTag> byte;
    const WordTag w;
    if constexpr (!kIsE4M3) {  // too large is float16's infinity, too
      const hn::RebindToUnsigned<WordTag> u;
      const auto halves = hn::BitCast(u, hn::DemoteTo(HalfTag(), v));
      return hn::DemoteTo(byte, hn::BitCast(w, hn::ShiftRight<8>(halves)));
    } else {
      const Float part = hn::Mul(v, hn::Set(FloatTag(), 1.0F / 256));
      const auto halves = hn::BitCast(w, hn::DemoteTo(HalfTag(), part));
      const auto nan = hn::Set(w, E4M3FN::kNan);
      const auto magnitude = hn::ShiftRight<7>(hn::And(halves, hn::Set(w, 0x7FFF)));
      const auto sign = hn::And(hn::ShiftRight<8>(halves), hn::Set(w, 0x80));
      const auto is_number = hn::Lt(magnitude, nan);
      return hn::DemoteTo(byte, hn::IfThenElse(is_number, hn::Or(magnitude, sign), nan));
    }
  }
};

#endif  // CIUIC_HAS_FLOAT16

template <class Codec>
struct Small {
  static constexpr int kParts = Codec::kParts;
  using Vec = Floats<kParts>;
  using Single = void;
  static constexpr size_t kElementBytes = sizeof(float) / kParts;
  static constexpr bool kIsHot = kParts == 2;

  static size_t lanes() { return kParts * hn::Lanes(FloatTag()); }
  static HWY_INLINE Vec load(const std::byte* p) { return Codec::load(p); }
  static void store(const Vec& v, std::byte* p) {
    Codec::store(each(v, v, [](Float a, Float) { return canonical(FloatTag(), a); }), p);
  }

  static HWY_INLINE Vec sum(const Vec& x, const Vec& y) {
    return each(x, y, [](Float a, Float b) { return hn::Add(a, b); });
  }
  static HWY_INLINE Vec product(const Vec& x, const Vec& y) {
    return each(x, y, [](Float a, Float b) { return hn::Mul(a, b); });
  }
  static HWY_INLINE Vec min(const Vec& x, const Vec& y) {
    return each(x, y, [](Float a, Float b) { return extreme<false>(a, b); });
  }
  static HWY_INLINE Vec max(const Vec& x, const Vec& y) {
    return each(x, y, [](Float a, Float b) { return extreme<true>(a, b); });
  }

  struct Scale {
    explicit Scale(const Call& call)
        : raw_factor(average_factors_of_small(call.reduction.ranks).raw) {}
    HWY_INLINE Vec read(const Vec& v, bool raw) const {
      const Float factor = hn::Set(FloatTag(), raw ? raw_factor : 1.0F);
      return each(v, v, [factor](Float a, Float) { return hn::Mul(a, factor); });
    }
    Vec finish(const Vec& v) const { return v; }
    float raw_factor;
  };

 private:
  template <class Function>
  static HWY_INLINE Vec each(const Vec& x, const Vec& y, Function function) {
    return each(x, y, function, std::make_index_sequence<kParts>());
  }

  // Spelled out: vectors that a loop counts through would lie in memory.
  template <class Function, size_t... i>
  static HWY_INLINE Vec each(const Vec& x, const Vec& y, Function function,
                             std::index_sequence<i...>) {
    return {{function(x.part[i], y.part[i])...}};
  }
};

template <class Codec>
Routine small_routine(ReduceOp op) {
  return fold_of<Small<Codec>, ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax,
                 ReduceOp::kProduct>(op);
}

HWY_INLINE Routine small_float_routine(const Reduction& reduction) {
  switch (reduction.dtype) {
    case DataType::kBFloat16: return small_routine<BFloat16Codec>(reduction.op);
#if CIUIC_HAS_FLOAT16
    case DataType::kFloat16: return small_routine<HalfCodec>(reduction.op);
    case DataType::kFloat8E4M3FN: return small_routine<Float8Codec<E4M3FN>>(reduction.op);
    case DataType::kFloat8E5M2: return small_routine<Float8Codec<E5M2>>(reduction.op);
    default: return nullptr;
#else
    default: return reduce_by_reference;
#endif
  }
}

void reduce_small_floats_simd(const Call& call) {
  const Routine routine = small_float_routine(call.reduction);
  CIUIC_ASSERT(routine != nullptr);
  routine(call);
}

#undef CIUIC_HAS_FLOAT16
#endif  // CIUIC_BY_REFERENCE

}  // namespace ciuic::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ciuic::kernels {

HWY_EXPORT(reduce_small_floats_simd);

void reduce_small_floats(const Call& call) { HWY_DYNAMIC_DISPATCH(reduce_small_floats_simd)(call); }

}  // namespace ciuic::kernels

#endif  // HWY_ONCE
