// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/feedback_select.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/arithmetic.hpp"

namespace winnow::kernels::reference {

/// Sorts all positions by (finite first, |acc| descending, index ascending) and takes the first k;
/// positions that are not finite keep their residual and travel as 0. Neither reads nor learns a
/// bound: every element is a candidate.
SelectResult feedback_select(const Exec& exec, const FeedbackSpans& spans, SelectBound&,
                             std::span<std::uint32_t> index, std::span<float> value) {
  const std::size_t count = spans.gradient.size();
  const std::size_t k = index.size();
  Workspace::Scope scope(*exec.workspace);
  const std::span<float> acc = exec.workspace->take<float>(count);
  const std::span<std::uint32_t> order = exec.workspace->take<std::uint32_t>(count);

  std::uint64_t finite = 0;
  for (std::size_t i = 0; i < count; ++i) {
    acc[i] = feedback(spans.gradient[i], spans.decay, spans.residual[i]);
    finite += std::isfinite(acc[i]);
  }

  std::iota(order.begin(), order.end(), 0u);
  const auto before = [&](std::uint32_t a, std::uint32_t b) {
    const bool finite_a = std::isfinite(acc[a]), finite_b = std::isfinite(acc[b]);
    if (finite_a != finite_b) return finite_a;
    if (finite_a && std::fabs(acc[a]) != std::fabs(acc[b])) {
      return std::fabs(acc[a]) > std::fabs(acc[b]);
    }
    return a < b;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(),
                    before);
  std::copy_n(order.begin(), k, index.begin());
  std::sort(index.begin(), index.end());

  for (std::size_t i = 0; i < count; ++i) {
    if (std::isfinite(acc[i])) spans.residual[i] = acc[i];
    spans.gradient[i] = 0;
  }
  for (std::size_t j = 0; j < k; ++j) {
    const std::uint32_t i = index[j];
    value[j] = std::isfinite(acc[i]) ? acc[i] : 0;
    if (std::isfinite(acc[i])) spans.residual[i] = 0;
  }
  return {.finite = finite == count, .candidates = finite, .passes = 1};
}

}  // namespace winnow::kernels::reference
