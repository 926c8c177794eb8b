// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "bench/micro/bench_kernels.hpp"
#include "bench/micro/kernel_timer.hpp"
#include "bench/micro/random_entries.hpp"
#include "bench/micro/targets.hpp"
#include "kernels/add_to.hpp"
#include "kernels/merge.hpp"

// Adding what the ranks sent, 1 % each: add_to one list, add_to_4 four and their average. The sum
// is not in the cache. merge: the union of two lists. There is no SIMD in them, hence one target.

namespace winnow::bench {
namespace {

template <int kLists>
void add_to(benchmark::State& state) {
  kernels::HostArray<float> sum(kCount);
  std::vector<Entries> lists;
  std::vector<kernels::SparseView> views;
  std::size_t kept = 0;
  for (unsigned seed = 1; seed <= kLists; ++seed) {
    lists.push_back(random_entries(kCount, kCount / 100, seed));
    views.push_back(lists.back().view());
    kept += views.back().index.size();
  }
  const double seconds = KernelTimer::get().run(
      state, {.kernel = [&] {
        benchmark::DoNotOptimize(kernels::add_to(Exec{}, sum.span(), 0, views, 1.0F / kLists));
      }});
  state.counters["ns_per_kept"] = 1e9 * seconds / static_cast<double>(kept);
}

void merge(benchmark::State& state) {
  const Entries first = random_entries(kCount, kCount / 100, 1);
  const Entries second = random_entries(kCount, kCount / 100, 2);
  const std::size_t kept = first.view().index.size() + second.view().index.size();
  kernels::HostArray<std::uint32_t> index(kept);
  kernels::HostArray<float> value(kept);
  const double seconds = KernelTimer::get().run(
      state, {.kernel = [&] {
        benchmark::DoNotOptimize(
            kernels::merge(Exec{}, first.view(), second.view(), index.span(), value.span()));
      }});
  state.counters["ns_per_kept"] = 1e9 * seconds / static_cast<double>(kept);
}

}  // namespace

void register_add() {
  register_once("add_to", std::to_string(kCount), add_to<1>);
  register_once("add_to_4", std::to_string(kCount), add_to<4>);
  register_once("merge", std::to_string(kCount), merge);
}

}  // namespace winnow::bench
