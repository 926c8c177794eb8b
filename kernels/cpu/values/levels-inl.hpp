// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Included once for each Highway target.
#if defined(WINNOW_KERNELS_CPU_VALUES_LEVELS) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_VALUES_LEVELS
#undef WINNOW_KERNELS_CPU_VALUES_LEVELS
#else
#define WINNOW_KERNELS_CPU_VALUES_LEVELS
#endif

#include "kernels/cpu/values/coder-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// values::Levels, in lanes.
template <class Coding>
class LevelLanes {
 public:
  using Scalar = Coding;

  HWY_INLINE explicit LevelLanes(float scale) : scale_(scale), inverse_(Scalar::inverse(scale)) {}

  HWY_INLINE VU nearest(VF x, VF& decoded) const {
    const VF raised = hn::Add(hn::Mul(x, hn::Set(DF(), inverse_)), rounder());
    decoded = hn::Mul(hn::Sub(raised, rounder()), hn::Set(DF(), scale_));
    return integer(raised);
  }

  HWY_INLINE VU stochastic(VF x, VU words, VF& decoded) const {
    const VF largest = hn::Set(DF(), Scalar::kLargestLevel);
    const VF sum = hn::Add(hn::Mul(x, hn::Set(DF(), inverse_)), unit_interval(words));
    const VF near = hn::Sub(hn::Add(sum, rounder()), rounder());
    const VF one = hn::IfThenElseZero(hn::Gt(near, sum), hn::Set(DF(), 1.0f));
    const VF level = hn::Max(hn::Min(hn::Sub(near, one), largest), hn::Neg(largest));
    decoded = hn::Mul(level, hn::Set(DF(), scale_));
    return integer(hn::Add(level, rounder()));
  }

  HWY_INLINE VF decode(VU code) const {
    return hn::Mul(hn::ConvertTo(DF(), hn::BitCast(DI(), code)), hn::Set(DF(), scale_));
  }

  static float scale(const float* x, std::size_t n) {
    return Scalar::scale_of(largest_magnitude(x, n));
  }

 private:
  static HWY_INLINE VF rounder() { return hn::Set(DF(), values::kRounder); }
  /// For an integer that was added to the rounder.
  static HWY_INLINE VU integer(VF raised) {
    return hn::Sub(hn::BitCast(DU(), raised), hn::BitCast(DU(), rounder()));
  }

  float scale_, inverse_;
};

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
