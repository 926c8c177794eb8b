// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

namespace train {

/// printf into a string.
template <class... Values>
std::string format(const char* form, Values... values) {
  std::string text(static_cast<std::size_t>(std::snprintf(nullptr, 0, form, values...)), '\0');
  std::snprintf(text.data(), text.size() + 1, form, values...);
  return text;
}

inline constexpr double kMilliseconds = 1e3;  // a second

/// The shortest text that reads back as the same number; JSON has no NaN.
template <class Float>
std::string exact(Float value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

/// 1234567 as 1,234,567.
inline std::string grouped(std::uint64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace train
