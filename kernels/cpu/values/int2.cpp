// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/values/int2.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/values/means-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

class Int2Lanes {
 public:
  using Scalar = values::Int2;

  HWY_INLINE explicit Int2Lanes(float scale) : scale_(scale), inverse_(Scalar::inverse(scale)) {}
  HWY_INLINE VU nearest(VF x, VF& decoded) const {
    const VF steps = hn::Mul(hn::Abs(x), hn::Set(DF(), inverse_));
    const auto is_larger = hn::Gt(steps, hn::Set(DF(), 2.0f));
    decoded = hn::CopySign(
        hn::IfThenElse(is_larger, hn::Set(DF(), 3 * scale_), hn::Set(DF(), scale_)), x);
    const VU larger = hn::IfThenElseZero(hn::RebindMask(DU(), is_larger), hn::Set(DU(), 1));
    const auto negative = hn::ShiftRight<31>(hn::BitCast(DI(), x));
    return hn::Xor(larger, hn::BitCast(DU(), negative));  // the complement of a negative one
  }
  HWY_INLINE VF decode(VU code) const {
    const auto level = hn::Add(hn::ShiftLeft<1>(hn::BitCast(DI(), code)), hn::Set(DI(), 1));
    return hn::Mul(hn::ConvertTo(DF(), level), hn::Set(DF(), scale_));
  }

  static HWY_INLINE VF addend(VF x) { return hn::Abs(x); }
  static float scale(const float* x, std::size_t n) {
    return Scalar::scale_of_mean(mean_of<Int2Lanes>(x, n));
  }

 private:
  float scale_, inverse_;
};

CodingBody int2_body() {
  return make_body<Int2Lanes>();
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(int2_body);

template <>
CodingBody coding_body<values::Int2>() {
  return HWY_DYNAMIC_DISPATCH(int2_body)();
}

}  // namespace winnow::kernels::cpu
#endif
