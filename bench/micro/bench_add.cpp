// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "bench/micro/bench_kernels.hpp"
#include "bench/micro/kernel_timer.hpp"
#include "bench/micro/random_entries.hpp"
#include "bench/micro/targets.hpp"
#include "kernels/merge.hpp"
#include "kernels/ordered_sum.hpp"

// Adding the ranks' lists of 1 % each: ordered_sum adds one list, ordered_sum_4 adds four and
// averages them. The sum is not in the cache; it reads zero only the first time, on which the work
// for a list does not depend. merge forms the union of two lists. These kernels have no SIMD, hence
// one target.

namespace winnow::bench {
namespace {

template <int kLists>
void ordered_sum(benchmark::State& state) {
  kernels::HostArray<float> sum(kCount);
  std::vector<Entries> lists;
  std::vector<kernels::Term> terms;
  std::size_t kept = 0;
  for (unsigned seed = 1; seed <= kLists; ++seed) {
    lists.push_back(random_entries(kCount, kCount / 100, seed));
    terms.push_back({.index = lists.back().view().index, .value = lists.back().view().value});
    kept += terms.back().index.size();
  }
  const double seconds =
      KernelTimer::get().run(state, {.kernel = [&] {
                               std::uint32_t not_finite = 0;
                               kernels::ordered_sum(Exec{}, {.terms = {terms},
                                                             .sums = kernels::alone({sum.span()}),
                                                             .factor = 1.0F / kLists,
                                                             .not_finite = &not_finite,
                                                             .after_accumulate = true});
                               benchmark::DoNotOptimize(not_finite);
                             }});
  state.counters["ns_per_kept"] = 1e9 * seconds / static_cast<double>(kept);
}

void merge(benchmark::State& state) {
  const Entries first = random_entries(kCount, kCount / 100, 1);
  const Entries second = random_entries(kCount, kCount / 100, 2);
  const std::size_t kept = first.view().index.size() + second.view().index.size();
  kernels::HostArray<std::uint32_t> index(kept);
  kernels::HostArray<float> value(kept);
  const double seconds = KernelTimer::get().run(state, {.kernel = [&] {
                                                  std::uint64_t size = 0;
                                                  kernels::merge(Exec{}, {.first = first.view(),
                                                                          .second = second.view(),
                                                                          .index = index.span(),
                                                                          .value = value.span(),
                                                                          .size = &size});
                                                  benchmark::DoNotOptimize(size);
                                                }});
  state.counters["ns_per_kept"] = 1e9 * seconds / static_cast<double>(kept);
}

}  // namespace

void register_add() {
  register_once("ordered_sum", std::to_string(kCount), ordered_sum<1>);
  register_once("ordered_sum_4", std::to_string(kCount), ordered_sum<4>);
  register_once("merge", std::to_string(kCount), merge);
}

}  // namespace winnow::bench
