// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/residual_add.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstddef>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/cpu/parallel.hpp"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void residual_add_range(float* residual, const float* gradient, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto add = [&](std::size_t i) {
    hn::StoreU(hn::Add(hn::LoadU(d, residual + i), hn::LoadU(d, gradient + i)), d, residual + i);
  };
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    add(i);
    add(i + lanes);
    add(i + 2 * lanes);
    add(i + 3 * lanes);
  }
  for (; i < count; ++i) residual[i] += gradient[i];
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(residual_add_range);

void residual_add(const Exec& exec, std::span<float> residual, std::span<const float> gradient) {
  for_each_range(exec.threads, residual.size(), [&](std::size_t begin, std::size_t end) {
    HWY_DYNAMIC_DISPATCH(residual_add_range)
    (residual.data() + begin, gradient.data() + begin, end - begin);
  });
}

}  // namespace winnow::kernels::cpu
#endif
