// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/merge.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "kernels/cpu/parallel.hpp"

// Merging two lists, a and b. Which of them the next entry comes from is chance, so no step
// branches on it; but each step then waits for the one before. Hence
//
//   run    an equal share of the entries of both, cut where no position is on both sides
//   step   writes one entry of the union: the lower of the two next positions, and both values
//          added, where the value of a list that does not name it counts as -0, which x + -0 = x
//          does not notice
//
// and a thread takes two runs at once, a step of each in turn. While each list of a run has n
// entries left, n steps of it need no look at its ends. Runs write where they would if no position
// were in both lists, and are moved together at the end.

namespace winnow::kernels::cpu {

namespace {

constexpr std::size_t kEntriesARun = 1 << 10;     // fewer are not worth a run of their own
constexpr std::size_t kEntriesAThread = 1 << 15;  // fewer are not worth waking a thread
constexpr std::size_t kMostThreads = 64;
constexpr std::uint32_t kNegativeZero = 0x80000000;

/// Both lists and their union.
struct Lists {
  const std::uint32_t *index_a, *index_b;
  const float *value_a, *value_b;
  std::uint32_t* index;
  float* value;
};

/// Entries [a, end_a) and [b, end_b) on their way to [begin, end) of the union, end so far.
struct Run {
  std::size_t a, end_a, b, end_b, begin, end;

  /// Steps that can be made without a look at the ends.
  std::size_t steps() const { return std::min(end_a - a, end_b - b); }
};

/// x, or -0 where `skipped` is all ones.
float value_unless(std::size_t skipped, float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto mask = static_cast<std::uint32_t>(skipped);
  return std::bit_cast<float>(bits ^ ((bits ^ kNegativeZero) & mask));
}

void step(const Lists& lists, Run& run) {
  const std::uint32_t a = lists.index_a[run.a], b = lists.index_b[run.b];
  // All ones where the entry is not the next one. Written as a choice, g++ makes branches of it.
  const auto skips_a = 0 - static_cast<std::size_t>(b < a);
  const auto skips_b = 0 - static_cast<std::size_t>(a < b);
  lists.index[run.end] = std::min(a, b);
  lists.value[run.end] =
      value_unless(skips_a, lists.value_a[run.a]) + value_unless(skips_b, lists.value_b[run.b]);
  ++run.end;
  run.a += 1 + skips_a;
  run.b += 1 + skips_b;
}

void finish(const Lists& lists, Run& run) {
  for (std::size_t n = run.steps(); n > 0; n = run.steps()) {
    for (; n > 0; --n) step(lists, run);
  }
  const std::size_t left_a = run.end_a - run.a, left_b = run.end_b - run.b;
  const bool of_a = left_a > 0;
  std::copy_n(of_a ? lists.index_a + run.a : lists.index_b + run.b, left_a + left_b,
              lists.index + run.end);
  std::copy_n(of_a ? lists.value_a + run.a : lists.value_b + run.b, left_a + left_b,
              lists.value + run.end);
  run.end += left_a + left_b;
}

void merge_two(Lists lists, std::span<Run, 2> runs) {
  Run first = runs[0], second = runs[1];  // locals stay in registers
  for (std::size_t n = 1; n > 0;) {
    n = std::min(first.steps(), second.steps());
    for (std::size_t i = 0; i < n; ++i) {
      step(lists, first);
      step(lists, second);
    }
  }
  finish(lists, first);
  finish(lists, second);
  runs[0] = first;
  runs[1] = second;
}

/// How far a merge has come: entries of each list before it.
struct Place {
  std::size_t a, b;
};

/// About `entries` entries into the merge, where no position is both before and behind.
Place cut(const SparseView& a, const SparseView& b, std::size_t entries) {
  const std::size_t size_a = a.index.size(), size_b = b.index.size();
  // The fewest of a that leave no entry of b before the cut above the next of a.
  std::size_t low = entries - std::min(entries, size_b), high = std::min(entries, size_a);
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (a.index[middle] < b.index[entries - middle - 1]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  Place place{low, entries - low};
  if (place.a < size_a && place.b > 0 && a.index[place.a] == b.index[place.b - 1]) ++place.a;
  return place;
}

}  // namespace

void merge(const Exec& exec, const MergeJob& job) {
  const SparseView &first = job.first, &second = job.second;
  const Lists lists{first.index.data(),  second.index.data(), first.value.data(),
                    second.value.data(), job.index.data(),    job.value.data()};
  const std::size_t entries = first.index.size() + second.index.size();
  if (entries < 2 * kEntriesARun) {
    Run run{0, first.index.size(), 0, second.index.size(), 0, 0};
    finish(lists, run);
    *job.size = run.end;
    return;
  }
  const auto allowed = static_cast<std::size_t>(std::max(exec.threads, 1));
  const std::size_t threads =
      std::clamp<std::size_t>(entries / kEntriesAThread, 1, std::min(allowed, kMostThreads));
  std::array<Run, 2 * kMostThreads> all;
  const auto runs = std::span(all).first(2 * threads);
  Place begin{0, 0};
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const bool last = r + 1 == runs.size();
    const Place end = cut(first, second, last ? entries : entries / runs.size() * (r + 1));
    const std::size_t at = begin.a + begin.b;
    runs[r] = {begin.a, end.a, begin.b, end.b, at, at};
    begin = end;
  }
  for_each_part(threads, [&](std::size_t t) { merge_two(lists, runs.subspan(2 * t).first<2>()); });
  std::size_t size = 0;
  for (const Run& run : runs) {
    std::copy_n(lists.index + run.begin, run.end - run.begin, lists.index + size);
    std::copy_n(lists.value + run.begin, run.end - run.begin, lists.value + size);
    size += run.end - run.begin;
  }
  *job.size = size;
}

}  // namespace winnow::kernels::cpu
