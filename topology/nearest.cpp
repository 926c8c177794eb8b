// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/nearest.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

namespace winnow {

/// Three rows of the table of distances at a time: row[j] is the distance between the first i
/// characters of a and the first j of b.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1), above(row), second(row);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    second.swap(above);
    above.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, above[j] + 1, row[j - 1] + 1});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) row[j] = std::min(row[j], second[j - 2] + 1);
    }
  }
  return row.back();
}

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known) {
  constexpr std::size_t kShortest = 3;  // that stands for the word which it begins
  const auto begins = [&](std::string_view other) { return other.starts_with(word); };
  if (word.size() >= kShortest && std::ranges::count_if(known, begins) == 1) {
    return *std::ranges::find_if(known, begins);
  }
  std::string_view nearest;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const std::string_view other : known) {
    const auto [shorter, longer] = std::minmax({word.size(), other.size()});
    if (3 * (longer - shorter) > longer) continue;  // it is not near, whatever its characters
    const std::size_t distance = edit_distance(word, other);
    if (distance >= least) continue;
    least = distance;
    nearest = other;
  }
  const bool is_near = !nearest.empty() && 3 * least <= std::max(word.size(), nearest.size());
  return is_near ? nearest : std::string_view{};
}

std::string hint_of(std::string_view meant) {
  return "did you mean '" + std::string(meant) + "'?";
}

std::string list_of(std::span<const std::string_view> known) {
  std::string text = "known are";
  for (const std::string_view& one : known) {
    text += &one == known.data() ? " " : ", ";
    text += one;
  }
  return text;
}

std::string advice(std::string_view word, std::span<const std::string_view> known) {
  const std::string_view meant = nearest_word(word, known);
  return meant.empty() ? list_of(known) : hint_of(meant);
}

}  // namespace winnow
