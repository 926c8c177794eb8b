// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace winnow::comm {

/// Bytes of the UTF-8 character with which `text` begins; 0 if it begins with none.
std::size_t character_bytes(std::string_view text);

/// A caller's text; empty for NULL. UsageError if it is not UTF-8, as all text here must be.
std::string_view text_of(const char* text, const char* what);

}  // namespace winnow::comm
