// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/values/mean.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/values/means-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

class MeanLanes {
 public:
  using Scalar = values::Mean;

  HWY_INLINE explicit MeanLanes(float scale) : scale_(scale) {}
  HWY_INLINE VU nearest(VF, VF& decoded) const {
    decoded = hn::Set(DF(), scale_);
    return hn::Zero(DU());
  }
  HWY_INLINE VF decode(VU) const { return hn::Set(DF(), scale_); }

  static HWY_INLINE VF addend(VF x) { return x; }
  static float scale(const float* x, std::size_t n) {
    return Scalar::scale_of_mean(mean_of<MeanLanes>(x, n));
  }

 private:
  float scale_;
};

CodingBody mean_body() {
  return make_body<MeanLanes>();
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(mean_body);

template <>
CodingBody coding_body<values::Mean>() {
  return HWY_DYNAMIC_DISPATCH(mean_body)();
}

}  // namespace winnow::kernels::cpu
#endif
