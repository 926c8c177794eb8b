// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <winnow/error.hpp>

#include "compress/selection.hpp"

namespace winnow::compress {

namespace {

Choice parse(std::string_view argument, const Codings&) {
  double density = 0;
  const auto [end, error] =
      std::from_chars(argument.data(), argument.data() + argument.size(), density);
  if (error != std::errc() || end != argument.data() + argument.size() || !(density > 0) ||
      density > 1) {
    fail_usage("topk takes a density above 0 and at most 1, such as topk:0.01, not '" +
               std::string(argument) + "'");
  }
  std::array<char, 32> text;
  std::string name = "topk:";
  name.append(text.data(), std::to_chars(text.begin(), text.end(), density).ptr);
  if (density == 1) return choose_everything(std::move(name));
  return {.selection = &kTopK, .argument = density, .name = std::move(name)};
}

std::uint64_t kept(double density, std::uint64_t count) {
  if (count == 0) return 0;
  // A density written in decimal is rarely a double: 0.07 * 100 is a little over 7, and must keep
  // 7. One part in 10^12 is far below one element and far above the rounding.
  const double exact = density * static_cast<double>(count) * (1 - 1e-12);
  return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(std::ceil(exact)), 1, count);
}

void feed(const Exec& exec, const FeedJob& job) {
  kernels::feedback_select(exec, {.spans = job.spans,
                                  .base = job.base,
                                  .index = job.index,
                                  .value = job.value,
                                  .state = &job.bounds->bound,
                                  .result = job.result,
                                  .own_bound = &job.bounds->sum_bound.bound,
                                  .gradient_after = kernels::GradientAfter::fed});
}

void pick(const Exec& exec, const PickJob& job) {
  kernels::select_sums(exec, {.owned = job.owned,
                              .fed = job.fed,
                              .terms = job.terms,
                              .out = job.out,
                              .touched_count = job.touched_count,
                              .state = &job.bounds->sum_bound,
                              .result = job.result});
}

}  // namespace

/// The max(1, ceil(density * count)) elements of each parameter that are largest in |acc|, ties to
/// the lowest index.
constinit const Selection kTopK{
    .name = "topk",
    .grammar = "topk:DENSITY",
    .parse = parse,
    .kept = kept,
    .feed = feed,
    .feed_scratch = kernels::feedback_select_scratch,
    .pick = pick,
};

}  // namespace winnow::compress
