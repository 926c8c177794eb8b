// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/values/bf16.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/values/coder-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

struct Bf16Lanes {
  using Scalar = values::Bf16;

  HWY_INLINE explicit Bf16Lanes(float) {}
  HWY_INLINE VU nearest(VF x, VF& decoded) const {
    const VU bits = hn::BitCast(DU(), x);
    const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(DU(), 1));
    return cut(bits, hn::Add(odd, hn::Set(DU(), 0x7fff)), decoded);
  }
  HWY_INLINE VU stochastic(VF x, VU words, VF& decoded) const {
    return cut(hn::BitCast(DU(), x), hn::ShiftRight<16>(words), decoded);
  }
  HWY_INLINE VF decode(VU code) const { return hn::BitCast(DF(), hn::ShiftLeft<16>(code)); }

 private:
  HWY_INLINE VU cut(VU bits, VU raise, VF& decoded) const {
    const VU sign = hn::Set(DU(), 0x80000000u);
    const VU size = hn::ShiftRight<16>(hn::Add(hn::AndNot(sign, bits), raise));
    const VU code = hn::Or(hn::ShiftRight<16>(hn::And(bits, sign)),
                           hn::Min(size, hn::Set(DU(), Scalar::kLargestCode)));
    decoded = decode(code);
    return code;
  }
};

CodingBody bf16_body() {
  return make_body<Bf16Lanes>();
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(bf16_body);

template <>
CodingBody coding_body<values::Bf16>() {
  return HWY_DYNAMIC_DISPATCH(bf16_body)();
}

}  // namespace winnow::kernels::cpu
#endif
