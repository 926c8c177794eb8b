// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace winnow::comm {

/// A caller's chars, whatever they are; empty for NULL. UsageError if none can lie there.
std::string_view chars_of(const char* chars, const char* what);
/// A caller's text; empty for NULL. UsageError if no text can lie there, or if it is not UTF-8, as
/// all text here must be.
std::string_view text_of(const char* text, const char* what);
/// A caller's text where nobody could learn of an error: empty if it is none.
std::string_view text_or_none(const char* text);

}  // namespace winnow::comm
