// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/values/fp16.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/values/coder-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

struct Fp16Lanes {
  using Scalar = values::Fp16;

  HWY_INLINE explicit Fp16Lanes(float) {}
  HWY_INLINE VU nearest(VF x, VF& decoded) const {
    const VU size = hn::BitCast(DU(), hn::Abs(x));
    const VU odd = hn::And(hn::ShiftRight<13>(size), hn::Set(DU(), 1));
    const VU subnormal = hn::Sub(hn::BitCast(DU(), hn::Add(hn::Abs(x), hn::Set(DF(), 0.5f))),
                                 hn::BitCast(DU(), hn::Set(DF(), 0.5f)));
    return join(x, hn::Add(odd, hn::Set(DU(), 0xfff)), subnormal, decoded);
  }
  HWY_INLINE VU stochastic(VF x, VU words, VF& decoded) const {
    const VF steps = hn::Add(hn::Mul(hn::Abs(x), hn::Set(DF(), 0x1p24f)), unit_interval(words));
    const VU subnormal = hn::BitCast(DU(), hn::ConvertTo(DI(), steps));
    return join(x, hn::ShiftRight<19>(words), subnormal, decoded);
  }
  HWY_INLINE VF decode(VU code) const {
    const VU sign = hn::Set(DU(), 0x8000);
    const VU bits =
        hn::Or(hn::ShiftLeft<16>(hn::And(code, sign)), hn::ShiftLeft<13>(hn::AndNot(sign, code)));
    return hn::Mul(hn::BitCast(DF(), bits), hn::Set(DF(), 0x1p112f));
  }

 private:
  /// The code of a normal result, cut after raise was added to |x|, or the subnormal one.
  HWY_INLINE VU join(VF x, VU raise, VU subnormal, VF& decoded) const {
    const VF size = hn::Abs(x);
    const VU normal = hn::Sub(hn::ShiftRight<13>(hn::Add(hn::BitCast(DU(), size), raise)),
                              hn::Set(DU(), Scalar::kRebias));
    const auto below = hn::Lt(size, hn::Set(DF(), 0x1p-14f));
    const VU larger = hn::Min(normal, hn::Set(DU(), Scalar::kLargestCode));
    const VU sign = hn::And(hn::BitCast(DU(), x), hn::Set(DU(), 0x80000000u));
    const VU code = hn::Or(hn::ShiftRight<16>(sign),
                           hn::IfThenElse(hn::RebindMask(DU(), below), subnormal, larger));
    decoded = decode(code);
    return code;
  }
};

CodingBody fp16_body() {
  return make_body<Fp16Lanes>();
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(fp16_body);

template <>
CodingBody coding_body<values::Fp16>() {
  return HWY_DYNAMIC_DISPATCH(fp16_body)();
}

}  // namespace winnow::kernels::cpu
#endif
