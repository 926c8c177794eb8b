// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/c_interface/text.hpp"

#include <string>
#include <winnow/error.hpp>

#include "comm/transport/printable.hpp"

namespace winnow::comm {

std::string_view text_of(const char* text, const char* what) {
  const std::string_view whole = text == nullptr ? std::string_view() : std::string_view(text);
  for (std::string_view rest = whole; !rest.empty();) {
    const std::size_t bytes = utf8_bytes(rest);
    WINNOW_EXPECTS(bytes > 0, std::string(what) + " is not UTF-8: byte " +
                                  std::to_string(whole.size() - rest.size()) +
                                  " begins no character");
    rest.remove_prefix(bytes);
  }
  return whole;
}

}  // namespace winnow::comm
