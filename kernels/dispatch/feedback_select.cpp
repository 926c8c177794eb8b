// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/feedback_select.hpp"

#include <limits>

#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

namespace reference {
SelectResult feedback_threshold(const Exec& exec, const FeedbackSpans& spans, float bound,
                                std::span<std::uint32_t> index, std::span<float> value);
SelectResult feedback_select(const Exec& exec, const FeedbackSpans& spans, SelectBound& state,
                             std::span<std::uint32_t> index, std::span<float> value);
void select(const Exec& exec, std::span<float> values, SelectBound& state,
            std::span<std::uint32_t> index, std::span<float> value);
}  // namespace reference
namespace cpu {
SelectResult feedback_threshold(const Exec& exec, const FeedbackSpans& spans, float bound,
                                std::span<std::uint32_t> index, std::span<float> value);
SelectResult feedback_select(const Exec& exec, const FeedbackSpans& spans, SelectBound& state,
                             std::span<std::uint32_t> index, std::span<float> value);
void select(const Exec& exec, std::span<float> values, SelectBound& state,
            std::span<std::uint32_t> index, std::span<float> value);
}  // namespace cpu

namespace {

void check(const Exec& exec, std::size_t count, std::span<const std::uint32_t> index,
           std::span<const float> value) {
  WINNOW_EXPECTS(count <= std::numeric_limits<std::uint32_t>::max(),
                 "a parameter must have fewer than 2^32 elements; cut it into pieces");
  WINNOW_EXPECTS(index.size() <= count, "k must be at most count");
  WINNOW_EXPECTS(value.size() == index.size(), "index and value must have k elements each");
  WINNOW_EXPECTS(exec.workspace != nullptr, "selection needs Exec::workspace");
}

}  // namespace

SelectResult feedback_select(const Exec& exec, const FeedbackSpans& spans, SelectBound& state,
                             std::span<std::uint32_t> index, std::span<float> value) {
  WINNOW_EXPECTS(spans.residual.size() == spans.gradient.size(),
                 "gradient and residual must have as many elements");
  check(exec, spans.gradient.size(), index, value);
  SelectResult result = dispatch_on_host(exec, reference::feedback_select, cpu::feedback_select,
                                         NoBody{}, spans, state, index, value);
  result.listed_by = spans.own.bound;
  return result;
}

SelectResult feedback_threshold(const Exec& exec, const FeedbackSpans& spans, float bound,
                                std::span<std::uint32_t> index, std::span<float> value) {
  WINNOW_EXPECTS(spans.residual.size() == spans.gradient.size(),
                 "gradient and residual must have as many elements");
  WINNOW_EXPECTS(bound > 0, "a bound must be above 0");
  WINNOW_EXPECTS(index.size() == spans.gradient.size(), "all elements may reach a bound");
  check(exec, spans.gradient.size(), index, value);
  SelectResult result =
      dispatch_on_host(exec, reference::feedback_threshold, cpu::feedback_threshold, NoBody{},
                       spans, bound, index, value);
  result.listed_by = spans.own.bound;
  return result;
}

void select(const Exec& exec, std::span<float> values, SelectBound& state,
            std::span<std::uint32_t> index, std::span<float> value) {
  check(exec, values.size(), index, value);
  dispatch_on_host(exec, reference::select, cpu::select, NoBody{}, values, state, index, value);
}

}  // namespace winnow::kernels
