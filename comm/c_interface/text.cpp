// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/c_interface/text.hpp"

#include <string>
#include <winnow/error.hpp>

#include "comm/transport/memory.hpp"
#include "comm/transport/printable.hpp"

namespace winnow::comm {

std::string_view chars_of(const char* chars, const char* what) {
  if (chars == nullptr) return {};
  const std::string wrong = memory_error(chars, 1, 1);
  WINNOW_EXPECTS(wrong.empty(), std::string(what).append(wrong));
  return chars;
}

std::string_view text_of(const char* text, const char* what) {
  const std::string_view whole = chars_of(text, what);
  for (std::string_view rest = whole; !rest.empty();) {
    const std::size_t bytes = utf8_bytes(rest);
    WINNOW_EXPECTS(bytes > 0, std::string(what) + " is not UTF-8: byte " +
                                  std::to_string(whole.size() - rest.size()) +
                                  " begins no character");
    rest.remove_prefix(bytes);
  }
  return whole;
}

std::string_view text_or_none(const char* text) {
  return memory_error(text, 1, 1).empty() ? std::string_view(text) : std::string_view();
}

}  // namespace winnow::comm
