// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Included once for each Highway target.
#if defined(WINNOW_KERNELS_CPU_VALUES_MEANS) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_VALUES_MEANS
#undef WINNOW_KERNELS_CPU_VALUES_MEANS
#else
#define WINNOW_KERNELS_CPU_VALUES_MEANS
#endif

#include "kernels/cpu/values/coder-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// values::sum_of_addends: its 16 partial sums are one to four vectors.
template <class Addend>
HWY_INLINE float sum_of_addends(const float* x, std::size_t n, const Addend& addend) {
  const std::size_t lanes = hn::Lanes(DF());
  VF sum0 = hn::Zero(DF()), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  for_each_vector(x, n, [&](std::size_t lane, VF v) {
    VF& sum = lane == 0 ? sum0 : lane == lanes ? sum1 : lane == 2 * lanes ? sum2 : sum3;
    sum = hn::Add(sum, addend(v));
  });
  alignas(64) float partial[16];
  hn::Store(sum0, DF(), partial);
  if (lanes < 16) hn::Store(sum1, DF(), partial + lanes);
  if (lanes < 8) hn::Store(sum2, DF(), partial + 2 * lanes);
  if (lanes < 8) hn::Store(sum3, DF(), partial + 3 * lanes);
  for (std::size_t width = 8; width > 0; width /= 2) {
    for (std::size_t j = 0; j < width; ++j) partial[j] += partial[j + width];
  }
  return partial[0];
}

/// values::mean_of the addends of Lanes, in lanes.
template <class Lanes>
float mean_of(const float* x, std::size_t n) {
  return values::mean_of(n, [&](float factor) {
    // A product with 1 is left out: nearly every block.
    return factor == 1 ? sum_of_addends(x, n, [](VF v) { return Lanes::addend(v); })
                       : sum_of_addends(x, n, [&](VF v) {
                           return hn::Mul(Lanes::addend(v), hn::Set(DF(), factor));
                         });
  });
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
