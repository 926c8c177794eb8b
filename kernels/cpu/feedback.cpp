// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/feedback.cpp"
#include "kernels/feedback.hpp"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/arithmetic/element.hpp"
#include "kernels/arithmetic/feedback.hpp"
#include "kernels/cpu/parallel.hpp"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void feedback_add_range(float* elements, const float* residual, std::size_t count, float decay) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto decays = hn::Set(d, decay);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto kept = hn::Mul(decays, hn::LoadU(d, residual + i));
    hn::StoreU(hn::Add(hn::LoadU(d, elements + i), kept), d, elements + i);
  }
  for (; i < count; ++i) elements[i] = feedback(elements[i], decay, residual[i]);
}

void feedback_keep_range(float* residual, const float* gradient, std::size_t count, float decay) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto decays = hn::Set(d, decay);
  const auto largest = hn::Set(d, std::numeric_limits<float>::max());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto before = hn::LoadU(d, residual + i);
    const auto acc = hn::Add(hn::LoadU(d, gradient + i), hn::Mul(decays, before));
    const auto finite = hn::Le(hn::Abs(acc), largest);
    hn::StoreU(hn::IfThenElse(finite, acc, before), d, residual + i);
  }
  for (; i < count; ++i) {
    const float acc = feedback(gradient[i], decay, residual[i]);
    if (std::isfinite(acc)) residual[i] = acc;
  }
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(feedback_add_range);
HWY_EXPORT(feedback_keep_range);

void feedback_add(const Exec& exec, std::span<float> elements, std::span<const float> residual,
                  float decay) {
  for_each_range(exec.threads, elements.size(), [&](std::size_t begin, std::size_t end) {
    HWY_DYNAMIC_DISPATCH(feedback_add_range)
    (elements.data() + begin, residual.data() + begin, end - begin, decay);
  });
}

/// Not vectors where there is more to it than an addition: what a call was not to send after all is
/// kept once, when it fails.
void feedback_keep(const Exec& exec, std::span<float> residual, const ConstElements& gradient,
                   float decay, const Precondition& precondition) {
  const bool plain =
      gradient.type() == ElementType::float32 && precondition.kind == Precondition::Kind::none;
  for_each_range(exec.threads, residual.size(), [&](std::size_t begin, std::size_t end) {
    if (plain) {
      HWY_DYNAMIC_DISPATCH(feedback_keep_range)
      (residual.data() + begin, gradient.as<float>().data() + begin, end - begin, decay);
      return;
    }
    const auto root = [](float x) { return std::sqrt(x); };
    for (std::size_t i = begin; i < end; ++i) {
      const auto [moment, update] =
          precondition.of(read_element(gradient, i), precondition.moment_of(i), residual[i], root);
      if (precondition.has_moment()) precondition.moment[i] = moment;
      const float acc = feedback(update, decay, residual[i]);
      if (std::isfinite(acc)) residual[i] = acc;
    }
  });
}

}  // namespace winnow::kernels::cpu
#endif
