// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/values/sign.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/values/means-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

class SignLanes {
 public:
  using Scalar = values::Sign;

  HWY_INLINE explicit SignLanes(float scale) : scale_(scale) {}
  HWY_INLINE VU nearest(VF x, VF& decoded) const {
    const VU bits = hn::BitCast(DU(), x);
    decoded = decode(hn::And(bits, hn::Set(DU(), 0x80000000u)));
    return bits;
  }
  HWY_INLINE VF decode(VU code) const {
    return hn::BitCast(DF(), hn::Or(code, hn::BitCast(DU(), hn::Set(DF(), scale_))));
  }

  static HWY_INLINE VF addend(VF x) { return hn::Abs(x); }
  static float scale(const float* x, std::size_t n) {
    return Scalar::scale_of_mean(mean_of<SignLanes>(x, n));
  }

 private:
  float scale_;
};

CodingBody sign_body() {
  return make_body<SignLanes>();
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(sign_body);

template <>
CodingBody coding_body<values::Sign>() {
  return HWY_DYNAMIC_DISPATCH(sign_body)();
}

}  // namespace winnow::kernels::cpu
#endif
