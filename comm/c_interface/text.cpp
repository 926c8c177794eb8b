// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/c_interface/text.hpp"

#include <string>
#include <winnow/error.hpp>

namespace winnow::comm {

// The table of well-formed sequences of the Unicode Standard, section 3.9: no surrogates, nothing
// above U+10FFFF, and no longer form of what a shorter one can say.
std::size_t character_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto is_in = [&](std::size_t i, unsigned char least, unsigned char most) {
    return i < text.size() && byte(i) >= least && byte(i) <= most;
  };
  const auto follows = [&](std::size_t i) { return is_in(i, 0x80, 0xbf); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool second = is_in(1, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf);
    return second && follows(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool second = is_in(1, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf);
    return second && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

std::string_view text_of(const char* text, const char* what) {
  const std::string_view whole = text == nullptr ? std::string_view() : std::string_view(text);
  for (std::string_view rest = whole; !rest.empty();) {
    const std::size_t bytes = character_bytes(rest);
    WINNOW_EXPECTS(bytes > 0, std::string(what) + " is not UTF-8: byte " +
                                  std::to_string(whole.size() - rest.size()) +
                                  " begins no character");
    rest.remove_prefix(bytes);
  }
  return whole;
}

}  // namespace winnow::comm
