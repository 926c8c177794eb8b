// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/feedback_select.hpp"

#include <limits>

#include "kernels/dispatch.hpp"

namespace winnow::kernels {

namespace reference {
SelectResult feedback_select(const Exec& exec, const FeedbackSpans& spans, SelectBound& state,
                             std::span<std::uint32_t> index, std::span<float> value);
}
namespace cpu {
SelectResult feedback_select(const Exec& exec, const FeedbackSpans& spans, SelectBound& state,
                             std::span<std::uint32_t> index, std::span<float> value);
}

SelectResult feedback_select(const Exec& exec, const FeedbackSpans& spans, SelectBound& state,
                             std::span<std::uint32_t> index, std::span<float> value) {
  const std::size_t count = spans.gradient.size();
  WINNOW_EXPECTS(spans.residual.size() == count,
                 "gradient and residual must have as many elements");
  WINNOW_EXPECTS(count <= std::numeric_limits<std::uint32_t>::max(),
                 "a parameter must have fewer than 2^32 elements; cut it into pieces");
  WINNOW_EXPECTS(!index.empty() && index.size() <= count, "k must be from 1 to count");
  WINNOW_EXPECTS(value.size() == index.size(), "index and value must have k elements each");
  WINNOW_EXPECTS(exec.workspace != nullptr, "feedback_select needs Exec::workspace");
  return dispatch(exec, reference::feedback_select, cpu::feedback_select, NoBody{}, spans, state,
                  index, value);
}

}  // namespace winnow::kernels
