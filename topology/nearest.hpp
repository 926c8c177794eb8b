// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace winnow {

/// The fewest insertions, deletions and replacements of a character that turn a into b (Levenshtein
/// 1966).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The known word that alone begins with `word`, or that at the least edit_distance from it, the
/// first among equals; empty where none is near: where the distance is more than half a word.
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known);

/// For the text of errors: "did you mean 'topk'?", or all known words where none is near.
std::string advice(std::string_view word, std::span<const std::string_view> known);

}  // namespace winnow
