// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/add_lists.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>

#include "kernels/cpu/parallel.hpp"

// Adding sparse lists. Each thread owns a range of positions and walks it tile by tile:
//
//   tile     kTile positions, small enough that their sums stay in the second-level cache while
//            every list passes over them
//   stretch  per list, its entries of the tile
//   touched  one bit per position of the tile: some list has written it and it still waits for
//            the factor; zero between tiles
//
//   1. for each list in order: add its entries of the tile, set their bits
//   2. for each list again: multiply where the bit is set, by 1 where it is not any more, and
//      clear it; so each position takes the factor once and only entries cost time
//
// With one list, or without a factor, step 2 folds into step 1. No loop branches on data,
// except where a sum ends.

namespace winnow::kernels::cpu {

namespace {

constexpr std::uint64_t kTile = std::uint64_t{1} << 15;
constexpr std::uint64_t kCacheLine = 16;          // floats: threads share none
constexpr std::size_t kAhead = 32;                // entries: covers the latency of memory
constexpr std::size_t kEntriesAThread = 1 << 13;  // fewer are not worth waking a thread
constexpr std::uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;

/// The largest magnitude stored so far, as bits: orders as |x| does, with Inf and NaN on top.
class Largest {
 public:
  void see(float x) { bits_ = std::max(bits_, std::bit_cast<std::uint32_t>(x) & kMagnitude); }
  bool finite() const { return bits_ < kInfinity; }

 private:
  std::uint32_t bits_ = 0;
};

/// Entries [begin, end) of a list, and the end of those that lie before the end of the sums.
struct Stretch {
  std::size_t begin, end, known;
};

/// Calls each(entry, its element) over a stretch, fetching elements ahead.
template <class Each>
void walk(std::span<const PlacedSpan> sums, const Term& list, Stretch stretch, const Each& each) {
  const std::uint32_t* const index = list.index.data();
  const std::size_t ahead = std::min(stretch.end, stretch.known - std::min(stretch.known, kAhead));
  std::size_t i = stretch.begin;
  for (const PlacedSpan& sum : sums) {
    if (i == stretch.end) return;
    float* const elements = sum.elements.floats().data();
    const std::uint64_t base = sum.base, end = sum.end();
    while (i < stretch.end && index[i] < base) ++i;  // of no sum
    for (; i < ahead && index[i] < end; ++i) {
      // Sums are mostly adjacent in memory, so this is the right line where it is another's, too.
      __builtin_prefetch(elements + (index[i + kAhead] - base), 1);
      each(i, elements[index[i] - base]);
    }
    for (; i < stretch.end && index[i] < end; ++i) each(i, elements[index[i] - base]);
  }
}

/// The first entry at or after `from` whose index is not below `bound`.
std::size_t find(const Term& list, std::size_t from, std::uint64_t bound, std::uint64_t most) {
  const auto begin = list.index.begin() + static_cast<std::ptrdiff_t>(from);
  const auto left = static_cast<std::uint64_t>(list.index.end() - begin);
  const auto end = begin + static_cast<std::ptrdiff_t>(std::min(left, most));
  return static_cast<std::size_t>(std::lower_bound(begin, end, bound) - list.index.begin());
}

/// The end of the entries that lie before the end of the sums.
std::size_t known_of(const Term& list, std::span<const PlacedSpan> sums) {
  return find(list, 0, sums.back().end(), list.index.size());
}

bool add_one(std::span<const PlacedSpan> sums, const Term& list, Stretch stretch, float factor) {
  Largest largest;
  const float* value = list.value.data();
  if (factor == 1) {
    walk(sums, list, stretch, [&](std::size_t i, float& element) {
      element += value[i];
      largest.see(element);
    });
  } else {
    walk(sums, list, stretch, [&](std::size_t i, float& element) {
      element = (element + value[i]) * factor;
      largest.see(element);
    });
  }
  return largest.finite();
}

/// Step 1 and, where there is a factor, step 2 for one tile after another.
class Tile {
 public:
  explicit Tile(float factor) : factor_(factor) {}

  /// The tile from position `begin` on, which has some of these sums.
  void move_to(std::uint64_t begin, std::span<const PlacedSpan> sums) {
    begin_ = begin;
    sums_ = sums;
  }

  void add(const Term& list, Stretch stretch) {
    const float* value = list.value.data();
    if (factor_ == 1) {
      Largest largest = largest_;  // a local stays in a register
      walk(sums_, list, stretch, [&](std::size_t i, float& element) {
        element += value[i];
        largest.see(element);
      });
      largest_ = largest;
      return;
    }
    const std::uint32_t* index = list.index.data();
    walk(sums_, list, stretch, [&](std::size_t i, float& element) {
      element += value[i];
      const std::uint64_t place = index[i] - begin_;
      touched_[place / 64] |= std::uint64_t{1} << (place % 64);
    });
  }

  void multiply(const Term& list, Stretch stretch) {
    const std::array<float, 2> factors{1, factor_};
    const std::uint32_t* index = list.index.data();
    Largest largest = largest_;
    walk(sums_, list, stretch, [&](std::size_t i, float& element) {
      const std::uint64_t place = index[i] - begin_;
      const std::uint64_t bit = std::uint64_t{1} << (place % 64), word = touched_[place / 64];
      touched_[place / 64] = word & ~bit;
      element *= factors[(word & bit) != 0];
      largest.see(element);
    });
    largest_ = largest;
  }

  bool finite() const { return largest_.finite(); }

 private:
  float factor_;
  std::uint64_t begin_ = 0;
  std::span<const PlacedSpan> sums_;
  Largest largest_;
  std::array<std::uint64_t, kTile / 64> touched_{};
};

/// Reads elements into the cache in order: where most cache lines are wanted, memory streams them
/// in twice as fast as it answers fetches of single ones.
void stream_in(std::span<const float> elements) {
  std::uint32_t all = 0;
  for (std::size_t i = 0; i < elements.size(); i += kCacheLine) {
    all |= std::bit_cast<std::uint32_t>(elements[i]);
  }
  __asm__ __volatile__("" : : "r"(all));  // the reads have no other use
}

constexpr std::size_t kRemembered = 64;  // lists; those beyond it are searched again

/// Adds several lists to the sums of positions [begin, end).
bool add_range(std::span<const PlacedSpan> sums, std::span<const Term> lists, float factor,
               std::uint64_t begin, std::uint64_t end) {
  Tile tile(factor);
  std::array<Stretch, kRemembered> remembered;
  for (std::uint64_t from = begin; from < end; from += kTile) {
    const std::uint64_t to = std::min(end, from + kTile);
    while (sums.front().end() <= from) sums = sums.subspan(1);  // the last one reaches `end`
    tile.move_to(from, sums);
    const auto search = [&](std::size_t p) -> Stretch {
      const Term& list = lists[p];
      const bool goes_on = p < kRemembered && from != begin;
      const std::size_t known = goes_on ? remembered[p].known : known_of(list, sums);
      const std::size_t first = goes_on ? remembered[p].end : find(list, 0, from, known);
      return {first, find(list, first, to, to - from), known};
    };
    std::size_t entries = 0;
    for (std::size_t p = 0; p < lists.size(); ++p) {
      const Stretch stretch = search(p);
      entries += stretch.end - stretch.begin;
      if (p < kRemembered) remembered[p] = stretch;
    }
    const auto stretch_of = [&](std::size_t p) {
      return p < kRemembered ? remembered[p] : search(p);
    };
    if (entries >= (to - from) / (2 * kCacheLine)) {
      for_each_within(sums, from, to, [](const Elements& elements, std::uint64_t) {
        stream_in(elements.floats());
      });
    }
    for (std::size_t p = 0; p < lists.size(); ++p) tile.add(lists[p], stretch_of(p));
    if (factor == 1) continue;
    for (std::size_t p = 0; p < lists.size(); ++p) tile.multiply(lists[p], stretch_of(p));
  }
  return tile.finite();
}

}  // namespace

bool add_lists(const Exec& exec, std::span<const Term> lists, std::span<const PlacedSpan> sums,
               float factor) {
  if (sums.empty()) return true;
  const std::uint64_t origin = sums.front().base;
  std::size_t entries = 0;
  for (const Term& list : lists) {
    const std::size_t known = known_of(list, sums);
    entries += known - find(list, 0, origin, known);
  }
  if (entries == 0) return true;
  const std::size_t useful = 1 + entries / kEntriesAThread;
  const int threads =
      static_cast<int>(std::min(useful, static_cast<std::size_t>(std::max(exec.threads, 1))));
  std::atomic<bool> finite{true};
  for_each_range(threads, positions(sums), [&](std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t from = origin + begin, to = origin + end;
    const auto first = std::ranges::partition_point(
        sums, [&](const PlacedSpan& sum) { return sum.end() <= from; });
    const std::span<const PlacedSpan> mine(first, sums.end());
    bool sound = true;
    if (lists.size() == 1) {
      const Term& list = lists.front();
      const std::size_t known = known_of(list, sums);
      const std::size_t start = find(list, 0, from, known);
      sound = add_one(mine, list, {start, find(list, start, to, known), known}, factor);
    } else {
      sound = add_range(mine, lists, factor, from, to);
    }
    if (!sound) finite.store(false, std::memory_order_relaxed);
  });
  return finite.load(std::memory_order_relaxed);
}

}  // namespace winnow::kernels::cpu
