// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Included once for each Highway target.
#if defined(WINNOW_KERNELS_CPU_PRECONDITION) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_PRECONDITION
#undef WINNOW_KERNELS_CPU_PRECONDITION
#else
#define WINNOW_KERNELS_CPU_PRECONDITION
#endif

#include <hwy/highway.h>

#include <limits>

#include "kernels/arithmetic/precondition.hpp"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The arithmetic of arithmetic/precondition.hpp, in lanes. Each returns the update of a vector of
// gradients; `moment` points to their moments, which take the step.

template <class D>
HWY_INLINE hn::Mask<D> are_moments(D d, hn::Vec<D> next) {
  return hn::Le(hn::Abs(next), hn::Set(d, std::numeric_limits<float>::max()));
}

template <class D>
HWY_INLINE hn::Vec<D> divide_by_moment(D d, hn::Vec<D> gradient, float* moment,
                                       const SecondMomentStep& by) {
  const auto before = hn::LoadU(d, moment);
  const auto next = hn::Add(hn::Mul(hn::Set(d, by.decay), before),
                            hn::Mul(hn::Set(d, by.weight), hn::Mul(gradient, gradient)));
  const auto root = hn::Sqrt(hn::Mul(next, hn::Set(d, by.correction)));
  const auto update =
      hn::Mul(hn::Div(gradient, hn::Add(root, hn::Set(d, by.floor))), hn::Set(d, by.rate));
  const auto good = are_moments(d, next);
  hn::StoreU(hn::IfThenElse(good, next, before), d, moment);
  const auto infinite = hn::Set(d, std::numeric_limits<float>::infinity());
  return hn::IfThenElse(good, update, hn::Mul(gradient, infinite));
}

/// Momentum begins anew in the lanes of `masked`.
template <class D>
HWY_INLINE hn::Vec<D> correct_momentum(D d, hn::Vec<D> gradient, float* moment, hn::Mask<D> masked,
                                       const MomentumStep& by) {
  const auto before = hn::LoadU(d, moment);
  const auto kept = hn::IfThenZeroElse(masked, before);
  const auto next = hn::Add(hn::Mul(hn::Set(d, by.momentum), kept), gradient);
  hn::StoreU(hn::IfThenElse(are_moments(d, next), next, before), d, moment);
  return hn::Mul(next, hn::Set(d, by.rate));
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
