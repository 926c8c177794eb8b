// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace winnow::compress {

/// The known word that the fewest insertions, deletions and replacements of a character turn
/// `word` into (Levenshtein 1966), the first among equals; empty where none is known. For the text
/// of errors: "unknown word 'topq'; did you mean 'topk'?".
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known);

}  // namespace winnow::compress
