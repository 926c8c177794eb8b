// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace winnow::comm {

/// Cuts off and returns what stands before the next end of line, or all.
inline std::string cut_line(std::string_view& text) {
  const auto end = text.find('\n');
  std::string line(text.substr(0, end));
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return line;
}

}  // namespace winnow::comm
