// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/arithmetic/element.hpp"

#include <cstdint>

#include "kernels/dispatch/bodies.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/feedback.hpp"
#include "kernels/half.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/reduce.hpp"

namespace winnow::kernels {

// elementwise.hpp

void scale(const Exec& exec, std::span<float> elements, float factor) {
  dispatch(exec, &Bodies::scale, elements, factor);
}

void look_ahead(const Exec& exec, std::span<const float> weights, std::span<const float> residual,
                float share, std::span<float> ahead) {
  WINNOW_EXPECTS(weights.size() == ahead.size() && residual.size() == ahead.size(),
                 "weights, residual and result must have as many elements");
  dispatch(exec, &Bodies::look_ahead, weights, residual, share, ahead);
}

void divide_by_moment(const Exec& exec, std::span<float> gradient, std::span<float> moment,
                      const SecondMomentStep& by) {
  WINNOW_EXPECTS(gradient.size() == moment.size(),
                 "gradient and moment must have as many elements");
  dispatch(exec, &Bodies::divide_by_moment, gradient, moment, by);
}

void correct_momentum(const Exec& exec, std::span<float> gradient, std::span<float> moment,
                      std::span<const float> residual, const MomentumStep& by) {
  WINNOW_EXPECTS(
      gradient.size() == moment.size() && (residual.empty() || gradient.size() == residual.size()),
      "gradient, moment and residual must have as many elements");
  dispatch(exec, &Bodies::correct_momentum, gradient, moment, residual, by);
}

void precondition(const Exec& exec, std::span<float> gradient, std::span<const float> residual,
                  const Precondition& by) {
  const std::span<float> moment(by.moment, by.has_moment() ? gradient.size() : 0);
  switch (by.kind) {
    case Precondition::Kind::none:
      break;
    case Precondition::Kind::rate:
      scale(exec, gradient, by.rate);
      break;
    case Precondition::Kind::second_moment:
      divide_by_moment(exec, gradient, moment, by.divide);
      break;
    case Precondition::Kind::momentum:
      correct_momentum(exec, gradient, moment, by.masked ? residual : std::span<const float>(),
                       by.add);
  }
}

void all_finite(const Exec& exec, std::span<const float> elements, std::uint32_t* not_finite) {
  WINNOW_EXPECTS(not_finite != nullptr, "all_finite needs a word for its answer");
  dispatch(exec, &Bodies::all_finite, elements, not_finite);
}

// feedback.hpp

void feedback_add(const Exec& exec, std::span<float> elements, std::span<const float> residual,
                  float decay) {
  WINNOW_EXPECTS(elements.size() == residual.size(),
                 "elements and residual must have as many elements");
  dispatch(exec, &Bodies::feedback_add, elements, residual, decay);
}

void feedback_keep(const Exec& exec, std::span<float> residual, const ConstElements& gradient,
                   float decay, const Precondition& precondition) {
  WINNOW_EXPECTS(residual.size() == gradient.size(),
                 "residual and gradient must have as many elements");
  expect_gradient(gradient.type());
  dispatch(exec, &Bodies::feedback_keep, residual, gradient, decay, precondition);
}

// half.hpp

void widen(const Exec& exec, ElementType type, std::span<const std::uint16_t> in,
           std::span<float> out) {
  WINNOW_EXPECTS(in.size() == out.size() && type != ElementType::float32,
                 "widen takes as many 16-bit elements as floats");
  dispatch(exec, &Bodies::widen, type, in, out);
}

void narrow(const Exec& exec, ElementType type, std::span<const float> in,
            std::span<std::uint16_t> out) {
  WINNOW_EXPECTS(in.size() == out.size() && type != ElementType::float32,
                 "narrow takes as many floats as 16-bit elements");
  dispatch(exec, &Bodies::narrow, type, in, out);
}

void keep_rest(const Exec& exec, const RestJob& job) {
  WINNOW_EXPECTS(job.type == ElementType::bf16 || job.type == ElementType::fp16,
                 "keep_rest takes sums for bf16 or fp16");
  WINNOW_EXPECTS(job.sums.size() == job.residual.size(),
                 "keep_rest takes as many residuals as sums");
  WINNOW_EXPECTS(job.too_large != nullptr, "keep_rest needs a word for too_large");
  dispatch(exec, &Bodies::keep_rest, job);
}

// memory_ops.hpp

void fill(const Exec& exec, const Elements& elements, float value) {
  expect_gradient(elements.type());
  dispatch(exec, &Bodies::fill, elements, value);
}

void copy(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  WINNOW_EXPECTS(to.size() == from.size(), "what is copied must be as long as its place");
  dispatch(exec, &Bodies::copy, to, from);
}

void store(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  WINNOW_EXPECTS(to.size() == from.size() && to.size() % sizeof(std::uint32_t) == 0 &&
                     reinterpret_cast<std::uintptr_t>(to.data()) % alignof(std::uint32_t) == 0,
                 "what is stored must be whole words, as long as their place");
  dispatch(exec, &Bodies::store, to, from);
}

void zero(const Exec& exec, std::span<std::byte> bytes) {
  WINNOW_EXPECTS(exec.condition.words == nullptr, "zero takes no condition: fill does");
  dispatch(exec, &Bodies::zero, bytes);
}

// reduce.hpp

void expect_reducible(ElementType type, ReduceOp op) {
  WINNOW_EXPECTS(type != ElementType::bf16 && type != ElementType::fp16,
                 "elements of 16 bits are not reduced as they are: widen them to float32");
  WINNOW_EXPECTS(op != ReduceOp::average,
                 "an average is not reduced as one: reduce the sum, then divide it");
}

void reduce(const Exec& exec, ReduceOp op, const Elements& into, const ConstElements& from) {
  expect_reducible(into.type(), op);
  WINNOW_EXPECTS(into.size() == from.size() && into.type() == from.type(),
                 "reduce takes as many elements of one type on both sides");
  dispatch(exec, &Bodies::reduce, op, into, from);
}

void average(const Exec& exec, const Elements& sums, int ranks) {
  dispatch(exec, &Bodies::average, sums, ranks);
}

void to_ordered(const Exec& exec, const Elements& floats, ReduceOp op) {
  dispatch(exec, &Bodies::to_ordered, floats, op);
}

void from_ordered(const Exec& exec, const Elements& floats) {
  dispatch(exec, &Bodies::from_ordered, floats);
}

}  // namespace winnow::kernels
