// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/ordered_sum.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>

#include "kernels/cpu/add_lists.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/memory_ops.hpp"

// The compiler's own vectors do here: a tile is in the first-level cache, and the pass over memory
// is what takes time.

namespace winnow::kernels::cpu {

namespace {

constexpr std::size_t kTile = 4096;  // the sums and one decoded term stay in the first-level cache

using Tile = std::array<float, kTile>;

void add(Tile& sum, const float* value, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) sum[i] += value[i];
}

/// Adds the entries of a list at positions [from, from + size).
void add_entries(const Exec& exec, Tile& sum, const Term& term, std::uint64_t from,
                 std::size_t size) {
  auto entry = std::lower_bound(term.index.begin(), term.index.end(), from);
  auto j = static_cast<std::size_t>(entry - term.index.begin());
  if (term.is_coded()) {
    entry = std::lower_bound(entry, term.index.end(), from + size);
    Tile decoded;
    const auto value =
        std::span(decoded).first(static_cast<std::size_t>(entry - term.index.begin()) - j);
    dequantize(exec, term.format, term.count, term.coded, j, value);
    for (const float x : value) sum[term.index[j++] - from] += x;
    return;
  }
  for (; j < term.index.size() && term.index[j] - from < size; ++j) {
    sum[term.index[j] - from] += term.value[j];
  }
}

/// Writes tile * factor; whether all of it is finite.
bool store(const Tile& tile, float factor, float* sum, std::size_t size) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const float element = tile[i] * factor;
    largest = std::max(largest, std::bit_cast<std::uint32_t>(element) & 0x7fffffffu);
    sum[i] = element;
  }
  return largest < 0x7f800000u;
}

/// Whether lists have so few entries that adding them one by one beats a pass over all sums.
bool is_sparse(std::span<const Term> lists, std::span<const PlacedSpan> sums) {
  constexpr std::size_t kElementsPerEntry = 16;
  std::size_t entries = 0;
  for (const Term& list : lists) entries += list.index.size();
  return entries <= positions(sums) / kElementsPerEntry;
}

/// Sums terms of any form, tile by tile. Returns whether every sum is finite.
bool add_terms(const Exec& exec, std::span<const Term> terms, std::span<const PlacedSpan> sums,
               float factor) {
  if (sums.empty()) return true;
  std::atomic<bool> finite{true};
  const Exec alone{.place = exec.place};
  const std::uint64_t origin = sums.front().base;
  for_each_range(exec.threads, positions(sums), [&](std::size_t first, std::size_t last) {
    Tile tile, decoded;
    const auto add_tile = [&](std::span<float> sum, std::uint64_t from) {
      const std::size_t size = sum.size();
      std::fill_n(tile.begin(), size, 0.0f);
      for (const Term& term : terms) {
        if (term.is_list()) {
          add_entries(alone, tile, term, from, size);
        } else if (term.is_coded()) {
          dequantize(alone, term.format, term.count, term.coded, from, {decoded.data(), size});
          add(tile, decoded.data(), size);
        } else {
          add(tile, term.value.data() + from, size);
        }
      }
      if (!store(tile, factor, sum.data(), size)) finite.store(false, std::memory_order_relaxed);
    };
    for_each_within(sums, origin + first, origin + last,
                    [&](std::span<float> elements, std::uint64_t position) {
                      for (std::size_t at = 0; at < elements.size(); at += kTile) {
                        const std::size_t size = std::min(kTile, elements.size() - at);
                        add_tile(elements.subspan(at, size), position + at);
                      }
                    });
  });
  return finite.load(std::memory_order_relaxed);
}

}  // namespace

void ordered_sum(const Exec& exec, const OrderedSumJob& job) {
  const std::span<const Term> terms = job.terms.host;
  const std::span<const PlacedSpan> sums = job.sums.host;
  const auto is_plain_list = [](const Term& term) { return term.is_list() && !term.is_coded(); };
  const bool by_entry =
      std::ranges::all_of(terms, is_plain_list) && (job.sums_are_fed || is_sparse(terms, sums));
  if (by_entry && !job.sums_are_fed) {
    for (const PlacedSpan& sum : sums) kernels::fill(exec, sum.elements, 0);
  }
  const auto add = by_entry ? add_lists : add_terms;
  const bool finite = add(exec, terms, sums, job.factor);
  if (!finite && job.not_finite != nullptr) *job.not_finite = 1;
}

}  // namespace winnow::kernels::cpu
