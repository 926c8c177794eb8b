// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/arithmetic/feedback.hpp"
#include "kernels/arithmetic/precondition.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/precondition-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void scale_range(float* elements, std::size_t count, float factor) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto factors = hn::Set(d, factor);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, elements + i), factors), d, elements + i);
  }
  for (; i < count; ++i) elements[i] *= factor;
}

/// A result of more elements leaves the caches before anyone reads it. It bypasses them, since a
/// store would otherwise read its line first.
constexpr std::size_t kMostCached = std::size_t{1} << 22;

void look_ahead_range(const float* weights, const float* residual, float share, float* ahead,
                      std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto shares = hn::Set(d, share);
  const auto vector = [&](std::size_t i) {
    return hn::Sub(hn::LoadU(d, weights + i), hn::Mul(shares, hn::LoadU(d, residual + i)));
  };
  std::size_t i = 0;
  if (ahead != weights && count > kMostCached) {
    const auto is_aligned = [&] {
      return reinterpret_cast<std::uintptr_t>(ahead + i) % (lanes * sizeof(float)) == 0;
    };
    for (; !is_aligned(); ++i) ahead[i] = ahead_of(weights[i], share, residual[i]);
    for (; i + lanes <= count; i += lanes) hn::Stream(vector(i), d, ahead + i);
    hwy::FlushStream();
  }
  for (; i + lanes <= count; i += lanes) hn::StoreU(vector(i), d, ahead + i);
  for (; i < count; ++i) ahead[i] = ahead_of(weights[i], share, residual[i]);
}

void divide_by_moment_range(float* gradient, float* moment, std::size_t count,
                            const SecondMomentStep& by) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto update = divide_by_moment(d, hn::LoadU(d, gradient + i), moment + i, by);
    hn::StoreU(update, d, gradient + i);
  }
  for (; i < count; ++i) {
    const auto root = [](float x) { return std::sqrt(x); };
    const Preconditioned made = divided_by_moment(gradient[i], moment[i], by, root);
    moment[i] = made.moment;
    gradient[i] = made.update;
  }
}

/// `residual` may be null.
void correct_momentum_range(float* gradient, float* moment, const float* residual,
                            std::size_t count, const MomentumStep& by) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto zero = hn::Zero(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto masked =
        residual == nullptr ? hn::Lt(zero, zero) : hn::Eq(hn::LoadU(d, residual + i), zero);
    const auto update = correct_momentum(d, hn::LoadU(d, gradient + i), moment + i, masked, by);
    hn::StoreU(update, d, gradient + i);
  }
  for (; i < count; ++i) {
    const bool masked = residual != nullptr && residual[i] == 0;
    const Preconditioned made = with_momentum(gradient[i], moment[i], masked, by);
    moment[i] = made.moment;
    gradient[i] = made.update;
  }
}

bool all_finite_range(const float* elements, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto largest = hn::Set(d, std::numeric_limits<float>::max());
  constexpr std::size_t kTile = 4096;  // elements between two looks at the outcome
  std::size_t i = 0;
  while (i + lanes <= count) {
    const std::size_t end = count - i < kTile ? count : i + kTile;
    auto finite = hn::Ge(largest, largest);
    for (; i + lanes <= end; i += lanes) {
      finite = hn::And(finite, hn::Le(hn::Abs(hn::LoadU(d, elements + i)), largest));
    }
    if (!hn::AllTrue(d, finite)) return false;
  }
  for (; i < count; ++i) {
    if (!std::isfinite(elements[i])) return false;
  }
  return true;
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(scale_range);
HWY_EXPORT(look_ahead_range);
HWY_EXPORT(divide_by_moment_range);
HWY_EXPORT(correct_momentum_range);
HWY_EXPORT(all_finite_range);

void scale(const Exec& exec, std::span<float> elements, float factor) {
  for_each_range(exec.threads, elements.size(), [&](std::size_t begin, std::size_t end) {
    HWY_DYNAMIC_DISPATCH(scale_range)(elements.data() + begin, end - begin, factor);
  });
}

void look_ahead(const Exec& exec, std::span<const float> weights, std::span<const float> residual,
                float share, std::span<float> ahead) {
  for_each_range(exec.threads, ahead.size(), [&](std::size_t begin, std::size_t end) {
    HWY_DYNAMIC_DISPATCH(look_ahead_range)
    (weights.data() + begin, residual.data() + begin, share, ahead.data() + begin, end - begin);
  });
}

void divide_by_moment(const Exec& exec, std::span<float> gradient, std::span<float> moment,
                      const SecondMomentStep& by) {
  for_each_range(exec.threads, gradient.size(), [&](std::size_t begin, std::size_t end) {
    HWY_DYNAMIC_DISPATCH(divide_by_moment_range)
    (gradient.data() + begin, moment.data() + begin, end - begin, by);
  });
}

void correct_momentum(const Exec& exec, std::span<float> gradient, std::span<float> moment,
                      std::span<const float> residual, const MomentumStep& by) {
  for_each_range(exec.threads, gradient.size(), [&](std::size_t begin, std::size_t end) {
    HWY_DYNAMIC_DISPATCH(correct_momentum_range)
    (gradient.data() + begin, moment.data() + begin,
     residual.empty() ? nullptr : residual.data() + begin, end - begin, by);
  });
}

void all_finite(const Exec& exec, std::span<const float> elements, std::uint32_t* not_finite) {
  std::atomic<bool> finite{true};
  for_each_range(exec.threads, elements.size(), [&](std::size_t begin, std::size_t end) {
    if (!HWY_DYNAMIC_DISPATCH(all_finite_range)(elements.data() + begin, end - begin)) {
      finite.store(false, std::memory_order_relaxed);
    }
  });
  if (!finite.load(std::memory_order_relaxed)) *not_finite = 1;
}

}  // namespace winnow::kernels::cpu
#endif
