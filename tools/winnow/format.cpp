// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/winnow/format.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <winnow/error.hpp>

namespace tool {

namespace {

struct Suffix {
  std::string_view text;
  double factor;
};
constexpr std::array kSuffixes = {
    Suffix{"", 1},      Suffix{"k", 1e3},      Suffix{"K", 1e3},
    Suffix{"M", 1e6},   Suffix{"G", 1e9},      Suffix{"B", 1e9},
    Suffix{"Ki", 1024}, Suffix{"Mi", 1048576}, Suffix{"Gi", 1073741824}};

std::string printed(const char* format, double value) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

}  // namespace

std::uint64_t parse_count(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const auto suffix = std::ranges::find(kSuffixes, rest, &Suffix::text);
  const double exact = suffix == kSuffixes.end() ? 0 : number * suffix->factor;
  const double count = std::round(exact);
  const bool is_whole = std::abs(exact - count) <= 1e-9 * count;  // but for rounding, as of 25.6M
  if (error != std::errc() || !(count >= 1) || count > 1e18 || !is_whole) {
    winnow::fail_usage(
        "a count is a whole number of elements such as 4194304, 25.6M or 4Mi, not '" +
        std::string(text) + "'");
  }
  return static_cast<std::uint64_t>(count);
}

std::string count_text(std::uint64_t count) {
  std::string text = std::to_string(count);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, 1, ',');
  return text;
}

std::string time_text(double seconds) {
  if (seconds >= 1) return printed("%.3g s", seconds);
  if (seconds >= 1e-3) return printed("%.3g ms", 1e3 * seconds);
  return printed("%.3g us", 1e6 * seconds);
}

std::string ratio_text(double ratio) {
  return printed(ratio < 9.95 ? "%.2fx" : "%.1fx", ratio);
}

std::string Table::text() const {
  std::vector<std::size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string pad(widths[c] - row[c].size(), ' ');
      if (c > 0) line += "  ";
      line += c == 0 ? row[c] + pad : pad + row[c];
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

}  // namespace tool
