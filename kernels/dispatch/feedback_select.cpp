// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/feedback_select.hpp"

#include <limits>
#include <string>

#include "kernels/arithmetic/element.hpp"
#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

namespace {

constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max();

void check(const OwnUnits& own) {
  if (own.partition == nullptr) return;
  WINNOW_EXPECTS(own.base % Partition::kUnit == 0,
                 "a parameter with own units must start at a multiple of 64, not at " +
                     std::to_string(own.base));
  WINNOW_EXPECTS(own.self < own.partition->owners(),
                 "the owner of own units must be one of the partition's");
  WINNOW_EXPECTS(own.index.size() == own.value.size(),
                 "the list of own elements needs a value for each index");
}

/// Elements that compete: those that are not own.
std::size_t check(const FeedbackSpans& spans) {
  const std::size_t count = spans.gradient.size();
  WINNOW_EXPECTS(count <= kMost,
                 "a parameter must have fewer than 2^32 elements; cut it into pieces");
  WINNOW_EXPECTS(spans.residual.size() == count,
                 "gradient and residual must have as many elements");
  expect_gradient(spans.gradient.type());
  check(spans.own);
  return count - spans.own.size(count);
}

}  // namespace

void feedback_select(const Exec& exec, std::span<const FeedbackSelectJob> jobs) {
  bool has_own = false, one_side = false;
  for (const FeedbackSelectJob& job : jobs) {
    const std::size_t competing = check(job.spans), k = job.index.size();
    WINNOW_EXPECTS(k <= competing && job.value.size() == k,
                   "index and value must have k elements each, at most as many as are not own");
    WINNOW_EXPECTS(job.state != nullptr && job.result != nullptr,
                   "feedback_select needs a state and a result in the memory of its place");
    has_own |= job.spans.own.partition != nullptr;
    one_side |= job.side != Side::both;
  }
  WINNOW_EXPECTS(!has_own || !one_side,
                 "where there are own units, elements of both sides are selected");
  dispatch(exec, &Bodies::feedback_select, jobs);
}

std::size_t feedback_select_scratch(const Exec& exec, std::span<const FeedbackSelectJob> jobs) {
  return body_of(exec, &Bodies::feedback_select_scratch)(exec, jobs);
}

void feedback_threshold(const Exec& exec, const FeedbackThresholdJob& job) {
  const std::size_t competing = check(job.spans), places = job.index.size();
  WINNOW_EXPECTS(job.bound > 0, "a bound must be above 0");
  WINNOW_EXPECTS(job.kept != nullptr && job.result != nullptr,
                 "feedback_threshold needs kept and a result in the memory of its place");
  // The host does not look at what a device has kept.
  const std::uint64_t kept = exec.place == Place::cuda ? 0 : *job.kept;
  WINNOW_EXPECTS(
      job.value.size() == places && places <= kMost && kept <= places && places - kept >= competing,
      "index and value must have as many places each, at least one for each element "
      "that is not own, and fewer than 2^32");
  dispatch(exec, &Bodies::feedback_threshold, job);
}

std::size_t feedback_threshold_scratch(const Exec& exec, std::size_t count, std::size_t listed) {
  return body_of(exec, &Bodies::feedback_threshold_scratch)(exec, count, listed);
}

}  // namespace winnow::kernels
