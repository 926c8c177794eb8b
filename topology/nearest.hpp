// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace winnow {

/// The fewest insertions, deletions and replacements of a character, and swaps of two neighbours,
/// that turn a into b (Damerau 1964).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The known word that alone begins with `word`, or that at the least edit_distance from it, the
/// first among equals; empty where none is near: where the distance is more than a third of the
/// longer word.
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known);

/// For the text of errors: "did you mean 'topk'?"
std::string hint_of(std::string_view meant);
/// "known are topk, none"
std::string list_of(std::span<const std::string_view> known);
/// A hint, or the list where no word is near.
std::string advice(std::string_view word, std::span<const std::string_view> known);

}  // namespace winnow
