// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/stats/table.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <ostream>
#include <string_view>
#include <vector>

#include "comm/stats/fields.hpp"

namespace winnow::comm {
namespace {

using Row = std::vector<std::string>;

constexpr std::size_t kTextColumns = 3;  // the first columns, aligned left; numbers are aligned
                                         // right

template <class... Values>
std::string print(const char* format, Values... values) {
  std::array<char, 64> text;
  const int size = std::snprintf(text.data(), text.size(), format, values...);
  return {text.data(), static_cast<std::size_t>(size)};
}

/// part / whole with `digits` behind the point, or "-" if whole is 0.
std::string ratio(double part, std::uint64_t whole, int digits, const char* unit = "") {
  return whole == 0 ? "-" : print("%.*f%s", digits, part / static_cast<double>(whole), unit);
}

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

Row head(bool measured) {
  Row row = {"bucket", "schedule",   "coding",       "count", "calls",
             "kept",   "bytes/call", "network/call", "saved"};
  for (const StatsStage& stage : kStages) row.push_back(std::string(stage.name) + " ms");
  row.insert(row.end(), {"poisoned", "clipped"});
  if (measured) row.insert(row.end(), {"density", "residual", "digest"});
  return row;
}

/// A row for `stats`, per call where that makes sense.
Row row_of(std::string label, std::uint64_t count, const Stats& stats, bool measured) {
  Row row = {
      std::move(label),
      or_dash(stats.schedule),
      or_dash(stats.coding),
      std::to_string(count),
      std::to_string(stats.calls),
      ratio(100 * static_cast<double>(stats.kept), stats.count, 2, " %"),
      ratio(static_cast<double>(stats.wire_bytes), stats.calls, 0),
      ratio(static_cast<double>(stats.network_bytes), stats.calls, 0),
      ratio(static_cast<double>(stats.dense_wire_bytes), stats.wire_bytes, 1, "x"),
  };
  for (const StatsStage& stage : kStages)
    row.push_back(ratio(1000 * (stats.*stage.seconds), stats.calls, 3));
  row.insert(row.end(), {std::to_string(stats.poisoned), std::to_string(stats.clipped)});
  if (!measured) return row;
  const double norm = stats.residual_norm;
  const auto digest = static_cast<unsigned long long>(stats.digest);
  row.push_back(ratio(100 * static_cast<double>(stats.nonzero), stats.measured, 2, " %"));
  row.push_back(std::isnan(norm) ? "-" : print("%.4g", norm));
  row.push_back(digest == 0 ? "-" : print("%016llx", digest));
  return row;
}

std::string align(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string blanks(widths[c] - row[c].size(), ' ');
      if (c > 0) text += "  ";
      text += c < kTextColumns ? row[c] + blanks : blanks + row[c];
    }
    text += '\n';
  }
  return text;
}

}  // namespace

void append_label(std::string& text, const BucketStats& bucket) {
  if (!bucket.name.empty()) {
    text += bucket.name;
    return;
  }
  std::array<char, 16> digits;
  text += "0x";
  text.append(digits.data(), std::to_chars(digits.begin(), digits.end(), bucket.id, 16).ptr);
}

void write_stats_table(std::ostream& out, int ranks, const Options& options,
                       std::span<const BucketStats> buckets, const Stats& totals) {
  const bool measured = options.stats >= 2;
  const auto label_of = [](const BucketStats& bucket) {
    std::string label;
    append_label(label, bucket);
    return label;
  };
  std::vector<Row> rows = {head(measured)};
  std::uint64_t count = 0;
  for (const BucketStats& bucket : buckets) {
    rows.push_back(row_of(label_of(bucket), bucket.count, bucket.totals, measured));
    count += bucket.count;
  }
  Stats sums = totals;  // without the texts of the last call
  sums.schedule.clear();
  sums.coding.clear();
  sums.residual_norm = std::numeric_limits<double>::quiet_NaN();
  rows.push_back(row_of("total", count, sums, measured));

  std::string text = "winnow: rank 0 of " + std::to_string(ranks) +
                     ", compressor=" + options.compressor + ", schedule=" + options.schedule + '\n';
  text += align(rows);
  for (const BucketStats& bucket : buckets) {
    if (bucket.compressed > 0) continue;
    text += label_of(bucket) + " goes dense: " + bucket.totals.reason + '\n';
  }
  out.write(text.data(), static_cast<std::streamsize>(text.size())).flush();
}

}  // namespace winnow::comm
