// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/c_interface/status.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "comm/c_interface/text.hpp"
#include "comm/transport/printable.hpp"

namespace {

/// A fixed room, since an error may tell of memory that ran out.
thread_local std::array<char, 2048> last_error{};

}  // namespace

extern "C" {

const char* winnow_last_error(void) {
  return last_error.data();
}

void winnow_set_last_error(const char* text) {
  std::string_view rest = winnow::comm::text_or_none(text);
  std::size_t at = 0;
  while (!rest.empty()) {  // whole characters, in UTF-8 whatever the text quotes
    const std::size_t bytes = winnow::comm::utf8_bytes(rest);
    const std::size_t taken = std::max<std::size_t>(bytes, 1);
    if (at + taken >= last_error.size()) break;
    std::copy_n(bytes > 0 ? rest.data() : "?", taken, &last_error[at]);
    at += taken;
    rest.remove_prefix(taken);
  }
  last_error[at] = '\0';
}

const char* winnow_version(void) {
  static const std::string kVersion = std::to_string(WINNOW_VERSION_MAJOR) + "." +
                                      std::to_string(WINNOW_VERSION_MINOR) + "." +
                                      std::to_string(WINNOW_VERSION_PATCH);
  return kVersion.c_str();
}

}  // extern "C"
