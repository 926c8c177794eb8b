// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tool {

/// Reads a number of elements: "25600000", "25.6M", "1k" or "4Mi". Throws winnow::UsageError that
/// says what would be right.
std::uint64_t parse_count(std::string_view text);

std::string count_text(std::uint64_t count);  ///< with commas
std::string time_text(double seconds);        ///< with a unit, three digits
std::string ratio_text(double ratio);         ///< "12.3x"

/// A text table: columns as wide as needed, the first aligned left, the others right.
class Table {
 public:
  explicit Table(std::vector<std::string> head) { rows_.push_back(std::move(head)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tool
