// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/nearest.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace winnow {

/// One row of the table of distances at a time: row[j] is the distance between the first i
/// characters of a and the first j of b.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];  // row i - 1, column j - 1
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
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
  const auto nearest = std::ranges::min_element(
      known, {}, [&](std::string_view other) { return edit_distance(word, other); });
  if (nearest == known.end()) return {};
  const bool is_near = 2 * edit_distance(word, *nearest) <= std::max(word.size(), nearest->size());
  return is_near ? *nearest : std::string_view{};
}

std::string advice(std::string_view word, std::span<const std::string_view> known) {
  const std::string_view meant = nearest_word(word, known);
  if (!meant.empty()) return "did you mean '" + std::string(meant) + "'?";
  std::string text = "known are";
  for (const std::string_view& one : known) {
    text += &one == known.data() ? " " : ", ";
    text += one;
  }
  return text;
}

}  // namespace winnow
