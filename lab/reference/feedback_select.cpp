// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/feedback_select.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/arithmetic/element.hpp"
#include "kernels/arithmetic/feedback.hpp"
#include "kernels/exec/place_memory.hpp"
#include "lab/reference/select.hpp"

namespace winnow::kernels::reference {

namespace {

/// Whether an element may be selected by its size.
bool counts(SideKey side, float acc) {
  return std::isfinite(acc) && side.has(acc);
}

/// Among `competing` positions, ascending, the k = index.size() with the largest |acc| on a side:
/// sorted by (those that count first, |acc| descending, index ascending).
void take_largest(std::span<std::uint32_t> competing, std::span<const float> acc, SideKey side,
                  std::span<std::uint32_t> index) {
  const auto before = [&](std::uint32_t a, std::uint32_t b) {
    const bool counts_a = counts(side, acc[a]), counts_b = counts(side, acc[b]);
    if (counts_a != counts_b) return counts_a;
    if (counts_a && std::fabs(acc[a]) != std::fabs(acc[b])) {
      return std::fabs(acc[a]) > std::fabs(acc[b]);
    }
    return a < b;
  };
  const auto k = static_cast<std::ptrdiff_t>(index.size());
  std::partial_sort(competing.begin(), competing.begin() + k, competing.end(), before);
  std::copy_n(competing.begin(), k, index.begin());
  std::sort(index.begin(), index.end());
}

/// The result of the feedback: acc, and the positions that compete, which are not own.
struct Feedback {
  std::span<float> acc;
  std::span<std::uint32_t> competing;
  bool finite = true;
  std::uint64_t listed = 0;
};

/// residual = acc where it is finite, gradient = 0; own units are listed.
Feedback accumulate(Workspace& workspace, const FeedbackSpans& spans) {
  const std::size_t count = spans.gradient.size();
  Feedback result{workspace.take<float>(count), workspace.take<std::uint32_t>(count)};
  const Partition* const partition = spans.own.partition;
  std::size_t competing = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto root = [](float x) { return std::sqrt(x); };
    const auto [moment, update] = spans.precondition.of(
        read_element(spans.gradient, i), spans.precondition.moment_of(i), spans.residual[i], root);
    if (spans.precondition.has_moment()) spans.precondition.moment[i] = moment;
    const float acc = feedback(update, spans.decay, spans.residual[i]);
    result.acc[i] = acc;
    write_element(spans.gradient, i, 0);
    result.finite = result.finite && std::isfinite(acc);
    const std::uint64_t position = spans.own.base + i;
    if (std::isfinite(acc)) spans.residual[i] = acc;
    if (partition == nullptr ||
        partition->owner_of_unit(position / Partition::kUnit) != spans.own.self) {
      result.competing[competing++] = static_cast<std::uint32_t>(i);
      continue;
    }
    if (!std::isfinite(acc) || std::fabs(acc) < spans.own.bound) continue;
    if (result.listed < spans.own.index.size()) {
      spans.own.index[result.listed] = static_cast<std::uint32_t>(partition->local(position));
      spans.own.value[result.listed] = acc;
    }
    ++result.listed;
  }
  result.competing = result.competing.first(competing);
  return result;
}

/// Bytes that accumulate takes for `count` elements.
std::size_t accumulate_scratch(std::size_t count) {
  constexpr std::size_t kLines = 2 * 64;  // what is taken is rounded up to one
  return count * (sizeof(float) + sizeof(std::uint32_t)) + kLines;
}

/// Positions that do not count keep their residual and travel as 0. Neither reads nor learns a
/// bound: every element that counts is a candidate.
void select_one(const Exec& exec, const FeedbackSelectJob& job) {
  FeedbackSpans spans = job.spans;
  if (job.own_bound != nullptr) spans.own.bound = *job.own_bound;
  Workspace& workspace = scratch_of(exec);
  const Workspace::Scope scope(workspace);
  const Feedback feedback = accumulate(workspace, spans);
  std::uint64_t candidates = 0;
  for (const std::uint32_t i : feedback.competing) candidates += counts(job.side, feedback.acc[i]);
  take_largest(feedback.competing, feedback.acc, job.side, job.index);
  for (std::size_t j = 0; j < job.index.size(); ++j) {
    const std::uint32_t i = job.index[j];
    job.value[j] = counts(job.side, feedback.acc[i]) ? feedback.acc[i] : 0;
    if (counts(job.side, feedback.acc[i])) spans.residual[i] = 0;
    job.index[j] = job.base + i;
  }
  *job.result = {.finite = feedback.finite,
                 .candidates = candidates,
                 .passes = 1,
                 .listed = feedback.listed,
                 .listed_by = spans.own.bound};
}

}  // namespace

void feedback_select(const Exec& exec, std::span<const FeedbackSelectJob> jobs) {
  for (const FeedbackSelectJob& job : jobs) select_one(exec, job);
}

std::size_t feedback_select_scratch(const Exec&, std::span<const FeedbackSelectJob> jobs) {
  std::size_t most = 0;
  for (const FeedbackSelectJob& job : jobs) most = std::max(most, job.spans.gradient.size());
  return accumulate_scratch(most);
}

void feedback_threshold(const Exec& exec, const FeedbackThresholdJob& job) {
  const FeedbackSpans& spans = job.spans;
  Workspace& workspace = scratch_of(exec);
  const Workspace::Scope scope(workspace);
  const Feedback feedback = accumulate(workspace, spans);
  const std::uint64_t before = *job.kept;
  for (const std::uint32_t i : feedback.competing) {
    if (!std::isfinite(feedback.acc[i]) || std::fabs(feedback.acc[i]) < job.bound) continue;
    job.index[*job.kept] = job.base + i;
    job.value[(*job.kept)++] = feedback.acc[i];
    spans.residual[i] = 0;
  }
  *job.result = {.finite = feedback.finite,
                 .candidates = *job.kept - before,
                 .passes = 1,
                 .listed = feedback.listed,
                 .listed_by = spans.own.bound};
}

std::size_t feedback_threshold_scratch(const Exec&, std::size_t count, std::size_t) {
  return accumulate_scratch(count);
}

void select(const Exec& exec, std::span<float> values, SelectBound&, std::span<std::uint32_t> index,
            std::span<float> value) {
  Workspace& workspace = scratch_of(exec);
  const Workspace::Scope scope(workspace);
  const std::span<std::uint32_t> order = workspace.take<std::uint32_t>(values.size());
  std::iota(order.begin(), order.end(), 0u);
  take_largest(order, values, Side::both, index);
  for (std::size_t j = 0; j < index.size(); ++j) {
    value[j] = values[index[j]];
    values[index[j]] = 0;
  }
}

}  // namespace winnow::kernels::reference
