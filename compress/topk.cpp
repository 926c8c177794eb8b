// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <winnow/error.hpp>

#include "compress/selection.hpp"
#include "topology/words.hpp"

namespace winnow::compress {

namespace {

Choice parse(std::string_view argument, const Codings&) {
  return choose_density(kTopK, argument, true);
}

/// "64/4096".
Choice parse_block(std::string_view argument, const Codings&) {
  std::uint64_t kept = 0, block = 0;
  const auto slash = std::min(argument.find('/'), argument.size());
  const bool good = slash < argument.size() && read_number(argument.substr(0, slash), kept) &&
                    read_number(argument.substr(slash + 1), block);
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 24;
  WINNOW_EXPECTS(good && kept > 0 && kept <= block && block % kernels::Partition::kUnit == 0 &&
                     block <= kLongest,
                 "blocktopk takes how many elements of how long a block are kept, such as "
                 "blocktopk:64/4096, the length a multiple of 64 up to 2^24, not '" +
                     std::string(argument) + "'");
  std::string name = "blocktopk:" + std::to_string(kept) + '/' + std::to_string(block);
  if (kept == block) return choose_everything(std::move(name));
  return {.selection = &kBlockTopK,
          .argument = static_cast<double>(kept) / static_cast<double>(block),
          .name = std::move(name),
          .block = block};
}

std::span<const kernels::FeedbackSelectJob> take_jobs(const Exec& exec,
                                                      std::span<const AccumulateJob> jobs) {
  const auto taken = exec.workspace->take<kernels::FeedbackSelectJob>(jobs.size());
  std::ranges::transform(jobs, taken.begin(), [](const AccumulateJob& job) {
    return kernels::FeedbackSelectJob{.spans = job.spans,
                                      .base = job.base,
                                      .index = job.index,
                                      .value = job.value,
                                      .state = &job.bounds->bound_of(job.side),
                                      .result = job.result,
                                      .own_bound = &job.bounds->sum_bound.bound,
                                      .gradient_after = kernels::GradientAfter::accumulated,
                                      .side = job.side};
  });
  return taken;
}

void accumulate(const Exec& exec, std::span<const AccumulateJob> jobs) {
  const Workspace::Scope scope(*exec.workspace);
  kernels::feedback_select(exec, take_jobs(exec, jobs));
}

std::size_t accumulate_scratch(const Exec& exec, std::span<const AccumulateJob> jobs) {
  const Workspace::Scope scope(*exec.workspace);
  return kernels::feedback_select_scratch(exec, take_jobs(exec, jobs));
}

std::span<const kernels::SelectSumsJob> take_jobs(const Exec& exec, std::span<const SumsJob> jobs) {
  const auto taken = exec.workspace->take<kernels::SelectSumsJob>(jobs.size());
  std::ranges::transform(jobs, taken.begin(), [](const SumsJob& job) {
    return kernels::SelectSumsJob{.owned = job.owned,
                                  .accumulated = job.accumulated,
                                  .terms = job.terms,
                                  .out = job.out,
                                  .touched_count = job.touched_count,
                                  .state = &job.bounds->sum_bound,
                                  .result = job.result};
  });
  return taken;
}

void select_sums(const Exec& exec, std::span<const SumsJob> jobs) {
  const Workspace::Scope scope(*exec.workspace);
  kernels::select_sums(exec, take_jobs(exec, jobs));
}

std::size_t select_sums_scratch(const Exec& exec, std::span<const SumsJob> jobs) {
  const Workspace::Scope scope(*exec.workspace);
  return kernels::select_sums_scratch(exec, take_jobs(exec, jobs));
}

constexpr Chooses kLargest{.takes_side = true,
                           .accumulate = accumulate,
                           .accumulate_scratch = accumulate_scratch,
                           .select_sums = select_sums,
                           .select_sums_scratch = select_sums_scratch};

}  // namespace

/// The max(1, ceil(density * count)) elements of each parameter that are largest in |acc|, ties to
/// the lowest index.
constinit const Selection kTopK{
    .name = "topk",
    .grammar = "topk:DENSITY[:sums=SHARE][:warmup=CALLS]",
    .parse = parse,
    .kept = kept_of_density,
    .support = kLargest,
};

/// The K largest of each block of N elements of a parameter, and as large a share of a shorter last
/// block: a block is selected from as if it were a parameter of its own. (DeMo: Peng et al., 2024;
/// SparseLoCo: Sarfi et al., 2025.)
constinit const Selection kBlockTopK{
    .name = "blocktopk",
    .grammar = "blocktopk:K/N",
    .parse = parse_block,
    .kept = kept_of_density,
    .support = kLargest,
};

}  // namespace winnow::compress
