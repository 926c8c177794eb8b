// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace winnow::comm {

/// Bytes of the UTF-8 character that `text` begins with (RFC 3629), or 0 if it begins with none.
inline std::size_t utf8_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  std::uint32_t code = first & (0x7fU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr std::uint32_t kFirstOf[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  return code < kFirstOf[bytes] || code > 0x10ffff || is_surrogate ? 0 : bytes;
}

/// A text of another process, for an error or a log: control characters, by which it could forge
/// lines or command a terminal, and bytes that are no UTF-8 become '?'.
inline std::string printable(std::string_view text) {
  std::string clean;
  while (!text.empty()) {
    const std::size_t bytes = utf8_bytes(text);
    const std::string_view character = text.substr(0, bytes == 0 ? 1 : bytes);
    const auto first = static_cast<unsigned char>(character.front());
    // U+0080 to U+009f are control characters, too; U+200e and others, of directions and lines.
    const auto last = static_cast<unsigned char>(character.back());
    const bool is_control = first < 0x20 || first == 0x7f || (first == 0xc2 && last < 0xa0) ||
                            (character.starts_with("\xe2\x80") &&
                             (last == 0x8e || last == 0x8f || (last >= 0xa8 && last <= 0xae))) ||
                            (character.starts_with("\xe2\x81") && last >= 0xa6 && last <= 0xa9);
    if (bytes == 0 || is_control)
      clean += '?';
    else
      clean += character;
    text.remove_prefix(character.size());
  }
  return clean;
}

}  // namespace winnow::comm
