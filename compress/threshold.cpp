// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <winnow/error.hpp>

#include "compress/selection.hpp"
#include "topology/words.hpp"

namespace winnow::compress {

namespace {

Choice parse(std::string_view argument, const Codings& codings) {
  float threshold = 0;
  if (!argument.empty() && !(read_number(argument, threshold) && threshold >= 0)) {
    fail_usage(
        "threshold takes what magnitudes have to exceed, 0 or more, such as "
        "threshold:0.001, not '" +
        std::string(argument) + "'");
  }
  const kernels::ValueCoding& coding = *codings.value.coding;
  WINNOW_EXPECTS(coding.has_zero,
                 "threshold takes no " + std::string(coding.name) +
                     " values: they are never 0, as elements that are not kept are where a message "
                     "carries every position");
  std::array<char, 32> text;
  std::string name = "threshold:";
  name.append(text.data(), std::to_chars(text.begin(), text.end(), threshold).ptr);
  // The kernels keep magnitudes of this bound or more.
  const float bound = std::nextafter(threshold, std::numeric_limits<float>::infinity());
  return {.selection = &kThreshold, .argument = bound, .name = std::move(name)};
}

void accumulate(const Exec& exec, std::span<const AccumulateJob> jobs) {
  for (const AccumulateJob& job : jobs) {
    kernels::FeedbackThresholdJob pass{.spans = job.spans,
                                       .base = job.base,
                                       .bound = static_cast<float>(job.argument),
                                       .index = job.index,
                                       .value = job.value,
                                       .kept = job.kept,
                                       .result = job.result,
                                       .gradient_after = kernels::GradientAfter::accumulated};
    pass.spans.own.bound = pass.bound;
    kernels::feedback_threshold(exec, pass);
  }
}

std::size_t accumulate_scratch(const Exec& exec, std::span<const AccumulateJob> jobs) {
  std::size_t most = 0;
  for (const AccumulateJob& job : jobs) {
    const kernels::FeedbackSpans& spans = job.spans;
    most = std::max(most, kernels::feedback_threshold_scratch(exec, spans.gradient.size(),
                                                              spans.own.index.size()));
  }
  return most;
}

void select_sums(const Exec& exec, std::span<const SumsJob> jobs) {
  for (const SumsJob& job : jobs) {
    kernels::keep_sums(exec, {.owned = job.owned,
                              .accumulated = job.accumulated,
                              .terms = job.terms,
                              .out = job.out,
                              .kept = job.kept,
                              .touched_count = job.touched_count,
                              .result = job.result});
  }
}

std::size_t select_sums_scratch(const Exec& exec, std::span<const SumsJob> jobs) {
  std::size_t most = 0;
  for (const SumsJob& job : jobs) {
    const kernels::SelectSumsJob sizes{.owned = job.owned, .terms = job.terms};
    most = std::max(most, kernels::select_sums_scratch(exec, {&sizes, 1}));
  }
  return most;
}

}  // namespace

/// The elements with |acc| > T, however many there are: with T = 0, the default, all that are not
/// zero, which loses nothing of a gradient that is sparse by nature. Owners keep their sums by the
/// same rule.
constinit const Selection kThreshold{
    .name = "threshold",
    .grammar = "threshold[:T]",
    .parse = parse,
    .kept = [](double, std::uint64_t count) { return count; },
    .support = Chooses{.variable_k = true,
                       .accumulate = accumulate,
                       .accumulate_scratch = accumulate_scratch,
                       .select_sums = select_sums,
                       .select_sums_scratch = select_sums_scratch},
};

}  // namespace winnow::compress
