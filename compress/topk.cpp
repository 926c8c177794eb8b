// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/selection.hpp"

namespace winnow::compress {

namespace {

Choice parse(std::string_view argument, const Codings&) {
  return choose_density(kTopK, argument);
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
    .grammar = "topk:DENSITY[:warmup=CALLS]",
    .parse = parse,
    .kept = kept_of_density,
    .feed = feed,
    .feed_scratch = kernels::feedback_select_scratch,
    .pick = pick,
};

}  // namespace winnow::compress
