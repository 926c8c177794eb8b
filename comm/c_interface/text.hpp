// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace winnow::comm {

/// A caller's text; empty for NULL. UsageError if it is not UTF-8, as all text here must be.
std::string_view text_of(const char* text, const char* what);

}  // namespace winnow::comm
