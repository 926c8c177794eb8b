// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/c_interface/status.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace {

/// A fixed room, since an error may tell of memory that ran out.
thread_local std::array<char, 2048> last_error{};

}  // namespace

extern "C" {

const char* winnow_last_error(void) {
  return last_error.data();
}

void winnow_set_last_error(const char* text) {
  const std::string_view whole = text == nullptr ? "" : text;
  const std::size_t bytes = std::min(whole.size(), last_error.size() - 1);
  std::copy_n(whole.data(), bytes, last_error.data());
  last_error[bytes] = '\0';
}

const char* winnow_version(void) {
  static const std::string kVersion = std::to_string(WINNOW_VERSION_MAJOR) + "." +
                                      std::to_string(WINNOW_VERSION_MINOR) + "." +
                                      std::to_string(WINNOW_VERSION_PATCH);
  return kVersion.c_str();
}

}  // extern "C"
