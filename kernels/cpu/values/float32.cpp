// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/values/float32.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/values/coder-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

struct Float32Lanes {
  using Scalar = values::Float32;

  HWY_INLINE explicit Float32Lanes(float) {}
  HWY_INLINE VU nearest(VF x, VF& decoded) const {
    decoded = x;
    return hn::BitCast(DU(), x);
  }
  HWY_INLINE VF decode(VU code) const { return hn::BitCast(DF(), code); }
};

CodingBody float32_body() {
  return make_body<Float32Lanes>();
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(float32_body);

template <>
CodingBody coding_body<values::Float32>() {
  return HWY_DYNAMIC_DISPATCH(float32_body)();
}

}  // namespace winnow::kernels::cpu
#endif
