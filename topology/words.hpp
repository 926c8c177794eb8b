// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace winnow {

/// The characters that separate words and are never part of one.
inline constexpr std::string_view kBlanks = " \t\n\r\v\f";

/// Options, compressors, links and topologies as people write them: without the blanks at both ends
/// and beside each of `marks`, so that "topk : 0.01 , int8" is "topk:0.01,int8".
std::string without_blanks(std::string_view text, std::string_view marks);

std::string lower_case(std::string_view text);

/// Cuts off and returns what stands before the next `mark`, or all.
std::string_view cut(std::string_view& text, char mark);
/// The words between any of `marks`: one more than there are marks.
std::vector<std::string_view> split(std::string_view text, std::string_view marks);

/// Reads a number that is all of `text`, perhaps behind a plus: "0.01", ".01", "1.", "1e-2", "+1";
/// a whole number has digits alone. Returns false, and leaves `number`, for anything else and for
/// numbers that are not finite.
template <class Number>
bool read_number(std::string_view text, Number& number) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  Number read{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, read);
  if (error != std::errc() || end != last) return false;
  if constexpr (std::floating_point<Number>) {
    if (!std::isfinite(read)) return false;
  }
  number = read;
  return true;
}

/// A number in as few characters as it can be read back from: "0.1", "1e+300".
template <class Number>
std::string number_text(Number number) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

/// Reads a share of a whole likewise: "0.01" or "1%".
bool read_share(std::string_view text, double& share);

/// How many bytes a unit has, in any case: B; K, M, G, T and KiB, MiB, GiB, TiB by 1024; kB, MB,
/// GB, TB by 1000; the empty one is B.
std::optional<std::uint64_t> bytes_of_unit(std::string_view unit);

/// Reads a whole number of bytes: "65536", "64K", "1.5MB". Nothing if `text` is none.
std::optional<std::uint64_t> read_bytes(std::string_view text);

}  // namespace winnow
