// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/take.hpp"

#include <algorithm>

#include "kernels/cpu/parallel.hpp"

// One element of a cache line is wanted, and that line is in no cache: what takes time is waiting
// for memory, so elements are fetched ahead. Threads share out the entries, not the elements: each
// entry is another element, so they never meet.

namespace winnow::kernels::cpu {

namespace {

constexpr std::size_t kAhead = 32;  // entries: covers the latency of memory

/// Calls each(entry, its element) for all entries.
template <class Each>
void walk(const Exec& exec, std::span<float> elements, std::uint32_t base,
          std::span<const std::uint32_t> index, const Each& each) {
  float* const first = elements.data();
  for_each_range(exec.threads, index.size(), [&](std::size_t begin, std::size_t end) {
    const std::size_t ahead = end - std::min(end - begin, kAhead);
    std::size_t j = begin;
    for (; j < ahead; ++j) {
      __builtin_prefetch(first + (index[j + kAhead] - base), 1);
      each(j, first[index[j] - base]);
    }
    for (; j < end; ++j) each(j, first[index[j] - base]);
  });
}

}  // namespace

void take(const Exec& exec, std::span<float> elements, std::uint32_t base,
          std::span<const std::uint32_t> index, std::span<float> value) {
  walk(exec, elements, base, index, [&](std::size_t j, float& element) {
    value[j] = element;
    element = 0;
  });
}

void put(const Exec& exec, std::span<float> elements, std::uint32_t base, const SparseView& list) {
  walk(exec, elements, base, list.index,
       [&](std::size_t j, float& element) { element = list.value[j]; });
}

}  // namespace winnow::kernels::cpu
