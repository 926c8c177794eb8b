// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/values/fp8.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/values/coder-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

class Fp8Lanes {
 public:
  using Scalar = values::Fp8;

  HWY_INLINE explicit Fp8Lanes(float scale) : scale_(scale), inverse_(Scalar::inverse(scale)) {}
  HWY_INLINE VU nearest(VF x, VF& decoded) const {
    const VF y = hn::Mul(x, hn::Set(DF(), inverse_));
    const VF raiser = hn::Set(DF(), 0x1p14f);
    const VU odd = hn::And(hn::ShiftRight<20>(hn::BitCast(DU(), y)), hn::Set(DU(), 1));
    const VU subnormal =
        hn::Sub(hn::BitCast(DU(), hn::Add(hn::Abs(y), raiser)), hn::BitCast(DU(), raiser));
    return join(y, hn::Add(odd, hn::Set(DU(), 0x7ffff)), subnormal, decoded);
  }
  HWY_INLINE VU stochastic(VF x, VU words, VF& decoded) const {
    const VF y = hn::Mul(x, hn::Set(DF(), inverse_));
    const VF steps = hn::Add(hn::Mul(hn::Abs(y), hn::Set(DF(), 0x1p9f)), unit_interval(words));
    const VU subnormal = hn::BitCast(DU(), hn::ConvertTo(DI(), steps));
    return join(y, hn::ShiftRight<12>(words), subnormal, decoded);
  }
  HWY_INLINE VF decode(VU code) const {
    const VU sign = hn::And(code, hn::Set(DU(), 0x80000000u));
    return value(sign, hn::And(code, hn::Set(DU(), 0x7f)));
  }

  static float scale(const float* x, std::size_t n) {
    return Scalar::scale_of(largest_magnitude(x, n));
  }

 private:
  /// Codes have a sign bit at the top of their lane, where the Packer takes integers, too.
  HWY_INLINE VF value(VU sign, VU size) const {
    const VF number = hn::BitCast(DF(), hn::Or(sign, hn::ShiftLeft<20>(size)));
    return hn::Mul(hn::Mul(number, hn::Set(DF(), 0x1p120f)), hn::Set(DF(), scale_));
  }
  /// The code of a normal result, cut after raise was added to |y|, or the subnormal one.
  HWY_INLINE VU join(VF y, VU raise, VU subnormal, VF& decoded) const {
    const VF size = hn::Abs(y);
    const VU normal = hn::Sub(hn::ShiftRight<20>(hn::Add(hn::BitCast(DU(), size), raise)),
                              hn::Set(DU(), Scalar::kRebias));
    const auto below = hn::Lt(size, hn::Set(DF(), 0x1p-6f));
    const VU larger = hn::Min(normal, hn::Set(DU(), Scalar::kLargestCode));
    const VU code = hn::IfThenElse(hn::RebindMask(DU(), below), subnormal, larger);
    const auto negative = hn::ShiftRight<31>(hn::BitCast(DI(), y));
    decoded = value(hn::And(hn::BitCast(DU(), y), hn::Set(DU(), 0x80000000u)), code);
    return hn::Or(hn::And(hn::BitCast(DU(), negative), hn::Set(DU(), 0xffffff80u)), code);
  }

  float scale_, inverse_;
};

CodingBody fp8_body() {
  return make_body<Fp8Lanes>();
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(fp8_body);

template <>
CodingBody coding_body<values::Fp8>() {
  return HWY_DYNAMIC_DISPATCH(fp8_body)();
}

}  // namespace winnow::kernels::cpu
#endif
