// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/ordered_sum.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>

#include "kernels/arithmetic/element.hpp"
#include "kernels/arithmetic/half.hpp"
#include "kernels/arithmetic/rest.hpp"
#include "kernels/cpu/add_lists.hpp"
#include "kernels/cpu/gallop.hpp"
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

/// The findings of threads about sums.
enum Found : std::uint32_t { kNothing = 0, kNotFinite = 1, kTooLarge = 2 };

std::uint32_t found(std::uint32_t largest, ElementRange range) {
  constexpr std::uint32_t kInfinity = 0x7f800000;
  if (largest >= kInfinity) return kNotFinite;
  return largest >= range.overflow ? kTooLarge : kNothing;
}

/// Writes tile * factor, by `round` to an element; what it found.
template <class T, class Round>
std::uint32_t store_as(const Tile& tile, float factor, std::span<T> sum, ElementRange range,
                       const Round& round) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const float element = tile[i] * factor;
    largest = std::max(largest, std::bit_cast<std::uint32_t>(element) & 0x7fffffffu);
    sum[i] = round(element);
  }
  return found(largest, range);
}

std::uint32_t store(const Tile& tile, float factor, const Elements& sum) {
  const ElementRange range = range_of(sum.type());
  switch (sum.type()) {
    case ElementType::bf16:
      return store_as(tile, factor, sum.halves(), range,
                      [range](float x) { return narrow_bf16(range.clip(x)); });
    case ElementType::fp16:
      return store_as(tile, factor, sum.halves(), range,
                      [range](float x) { return narrow_fp16(range.clip(x)); });
    default:
      return store_as(tile, factor, sum.floats(), range, [](float x) { return x; });
  }
}

/// Adds the rests of tile * factor, from position `from` on, to their residuals.
void keep_rests(const Tile& tile, const OrderedSumJob& job, ElementType type, std::uint64_t from,
                std::size_t size) {
  const ElementRange range = range_of(type);
  const RestKeeper& keeper = job.rests.keeper;
  for_each_within(job.rests.residuals.host, from, from + size,
                  [&](const Elements& residual, std::uint64_t position) {
                    for (std::size_t i = 0; i < residual.size(); ++i) {
                      const float sum = tile[position - from + i] * job.factor;
                      if (!range.exceeded_by(sum) || !keeper.keeps(position + i)) continue;
                      float& kept = residual.floats()[i];
                      kept = keeper.add_rest(kept, sum, range);
                    }
                  });
}

/// Whether lists have so few entries that adding them one by one beats a pass over all sums.
bool is_sparse(std::span<const Term> lists, std::span<const PlacedSpan> sums) {
  constexpr std::size_t kElementsPerEntry = 16;
  std::size_t entries = 0;
  for (const Term& list : lists) entries += list.index.size();
  return entries <= positions(sums) / kElementsPerEntry;
}

/// Calls each(elements, position of the first) with no more elements than a tile has.
template <class Each>
void for_each_tile(std::span<const PlacedSpan> sums, std::uint64_t begin, std::uint64_t end,
                   const Each& each) {
  for_each_within(sums, begin, end, [&](const Elements& elements, std::uint64_t position) {
    for (std::size_t at = 0; at < elements.size(); at += kTile) {
      const std::size_t size = std::min(kTile, elements.size() - at);
      each(elements.subspan(at, size), position + at);
    }
  });
}

/// Sums terms of any form, tile by tile. Returns what it found.
std::uint32_t add_terms(const Exec& exec, const OrderedSumJob& job) {
  const std::span<const Term> terms = job.terms.host;
  const std::span<const PlacedSpan> sums = job.sums.host;
  if (sums.empty()) return kNothing;
  std::atomic<std::uint32_t> all_found{kNothing};
  const Exec alone{.place = exec.place};
  const std::uint64_t origin = sums.front().base;
  for_each_range(exec.threads, positions(sums), [&](std::size_t first, std::size_t last) {
    Tile tile, decoded;
    const auto add_tile = [&](const Elements& sum, std::uint64_t from) {
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
      if (!job.rests.empty()) {
        keep_rests(tile, job, sum.type(), from, size);
      } else if (const auto now = store(tile, job.factor, sum); now != kNothing) {
        all_found.fetch_or(now, std::memory_order_relaxed);
      }
    };
    for_each_tile(sums, origin + first, origin + last, add_tile);
  });
  return all_found.load(std::memory_order_relaxed);
}

/// Where a thread that walks positions in order has come to in each list.
class Cursors {
 public:
  Cursors(std::span<const Term> lists, std::uint64_t begin) : lists_(lists) {
    for (std::size_t p = 0; p < lists.size(); ++p) set(p, find(p, 0, begin));
  }
  /// Calls each(list, entry, end) with the entries of each list at positions [from, to).
  template <class Each>
  void for_each_stretch(std::uint64_t from, std::uint64_t to, const Each& each) const {
    for (std::size_t p = 0; p < lists_.size(); ++p) {
      const std::size_t entry = find(p, p < kRemembered ? entry_[p] : 0, from);
      each(lists_[p], entry, find(p, entry, to));
    }
  }
  void move_to(std::uint64_t position) {
    for (std::size_t p = 0; p < std::min(kRemembered, lists_.size()); ++p) {
      set(p, find(p, entry_[p], position));
    }
  }

 private:
  static constexpr std::size_t kRemembered = 64;  // those beyond are searched again

  std::size_t find(std::size_t p, std::size_t from, std::uint64_t position) const {
    const auto& index = lists_[p].index;
    return gallop(from, index.size(), [&](std::size_t j) { return index[j] < position; });
  }
  void set(std::size_t p, std::size_t entry) {
    if (p < kRemembered) entry_[p] = entry;
  }

  std::span<const Term> lists_;
  std::array<std::size_t, kRemembered> entry_;
};

/// Sums lists, whose values are not coded, where all elements are zeros: writes only what they
/// name. Sums are made in a tile, since 16 bits would round each addition. Returns what it found.
std::uint32_t add_to_zeros(const Exec& exec, const OrderedSumJob& job) {
  const std::span<const Term> lists = job.terms.host;
  const std::span<const PlacedSpan> sums = job.sums.host;
  if (sums.empty()) return kNothing;
  std::atomic<std::uint32_t> all_found{kNothing};
  const std::uint64_t origin = sums.front().base;
  for_each_range(exec.threads, positions(sums), [&](std::size_t first, std::size_t last) {
    Tile tile{};  // zeros between tiles
    Cursors cursors(lists, origin + first);
    std::uint32_t here = kNothing;
    const auto add_tile = [&](const Elements& sum, std::uint64_t from) {
      const ElementRange range = range_of(sum.type());
      std::uint32_t largest = 0;
      const std::uint64_t to = from + sum.size();
      const auto walk = [&](const auto& each) {
        cursors.for_each_stretch(from, to, [&](const Term& list, std::size_t j, std::size_t end) {
          for (; j < end; ++j) each(list.index[j] - from, list.value[j]);
        });
      };
      walk([&](std::size_t i, float value) { tile[i] += value; });
      walk([&](std::size_t i, float) {
        const float element = tile[i] * job.factor;
        largest = std::max(largest, std::bit_cast<std::uint32_t>(element) & 0x7fffffffu);
        (void)write_element(sum, i, range.clip(element));
      });
      here |= found(largest, range);
      walk([&](std::size_t i, float) { tile[i] = 0; });
      cursors.move_to(to);
    };
    for_each_tile(sums, origin + first, origin + last, add_tile);
    if (here != kNothing) all_found.fetch_or(here, std::memory_order_relaxed);
  });
  return all_found.load(std::memory_order_relaxed);
}

/// Sums lists, whose values are not coded, where all elements are zeros of float32.
std::uint32_t add_to_floats(const Exec& exec, const OrderedSumJob& job) {
  return add_lists(exec, job.terms.host, job.sums.host, job.factor) ? kNothing : kNotFinite;
}

}  // namespace

void ordered_sum(const Exec& exec, const OrderedSumJob& job) {
  const std::span<const Term> terms = job.terms.host;
  const std::span<const PlacedSpan> sums = job.sums.host;
  if (!job.rests.empty()) {
    if (!job.rests.are_none()) (void)add_terms(exec, job);
    return;
  }
  const auto is_plain_list = [](const Term& term) { return term.is_list() && !term.is_coded(); };
  const auto are_floats = [](const PlacedSpan& sum) {
    return sum.elements.type() == ElementType::float32;
  };
  const bool by_entry =
      std::ranges::all_of(terms, is_plain_list) && (job.after_accumulate || is_sparse(terms, sums));
  if (by_entry && !job.after_accumulate) {
    for (const PlacedSpan& sum : sums) kernels::fill(exec, sum.elements, 0);
  }
  const auto add = !by_entry                               ? add_terms
                   : std::ranges::all_of(sums, are_floats) ? add_to_floats
                                                           : add_to_zeros;
  const std::uint32_t all_found = add(exec, job);
  if ((all_found & kNotFinite) != 0 && job.not_finite != nullptr) *job.not_finite = 1;
  if ((all_found & kTooLarge) != 0 && job.too_large != nullptr) *job.too_large = 1;
}

}  // namespace winnow::kernels::cpu
