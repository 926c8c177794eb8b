// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/words.hpp"

#include <algorithm>
#include <cctype>

namespace winnow {

std::string without_blanks(std::string_view text, std::string_view marks) {
  const auto is_mark = [&](char c) { return marks.find(c) != std::string_view::npos; };
  std::string result;
  while (!text.empty()) {
    const auto blanks = std::min(text.find_first_not_of(kBlanks), text.size());
    const bool at_end = result.empty() || blanks == text.size();
    if (!at_end && !is_mark(result.back()) && !is_mark(text[blanks])) {
      result += text.substr(0, blanks);
    }
    text.remove_prefix(blanks);
    const auto end = std::min(text.find_first_of(kBlanks), text.size());
    result += text.substr(0, end);
    text.remove_prefix(end);
  }
  return result;
}

std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string_view cut(std::string_view& text, char mark) {
  const auto end = std::min(text.find(mark), text.size());
  const auto word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

std::vector<std::string_view> split(std::string_view text, std::string_view marks) {
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find_first_of(marks, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

bool read_share(std::string_view text, double& share) {
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  double number = 0;
  // As a decimal, so that 7% is what 0.07 is.
  const bool plain = text.find_first_of("eE") == std::string_view::npos;
  if (!read_number(percent && plain ? std::string(text) + "e-2" : std::string(text), number))
    return false;
  share = percent && !plain ? number / 100 : number;
  return true;
}

std::optional<std::uint64_t> bytes_of_unit(std::string_view unit) {
  std::string name = lower_case(unit);
  if (name.empty() || name == "b") return 1;
  std::uint64_t base = 1024;
  if (name.ends_with("ib")) {
    name.resize(name.size() - 2);
  } else if (name.ends_with('b')) {
    base = 1000;
    name.resize(name.size() - 1);
  }
  constexpr std::string_view kPrefixes = "kmgt";
  const auto power = name.size() == 1 ? kPrefixes.find(name.front()) : std::string_view::npos;
  if (power == std::string_view::npos) return {};
  std::uint64_t bytes = base;
  for (std::size_t i = 0; i < power; ++i) bytes *= base;
  return bytes;
}

std::optional<std::uint64_t> read_bytes(std::string_view text) {
  const auto digits = std::min(text.find_first_not_of("+0123456789.eE"), text.size());
  const auto unit = bytes_of_unit(without_blanks(text.substr(digits), {}));
  if (!unit) return {};
  const std::string_view number = text.substr(0, digits);
  if (std::uint64_t whole = 0; read_number(number, whole)) {
    if (whole > UINT64_MAX / *unit) return {};
    return whole * *unit;
  }
  constexpr double kMost = 9007199254740992;  // whole numbers up to 2^53 are doubles
  double fraction = 0;
  if (!read_number(number, fraction)) return {};
  const double bytes = fraction * static_cast<double>(*unit);
  if (!(bytes >= 0) || bytes != std::floor(bytes) || bytes > kMost) return {};
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace winnow
