// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace winnow::comm {

/// The most bytes of a text that a rank sends to explain why it differs.
inline constexpr std::size_t kMostWords = 8192;

/// Options::to_string with long values cut short and replaced by their hash, in kMostWords.
std::string abridged_options(std::string_view options);

/// In which options such texts of all ranks differ, with the values and who has them: "compressor
/// is topk:0.01 on ranks 0-2 and topk:0.02 on rank 3; op is ...". Empty if the texts are equal.
std::string option_differences(std::span<const std::string_view> texts);

/// The first line in which two texts differ: "X there and Y here". Empty if that is not in both.
std::string first_difference(std::string_view their_lines, std::string_view our_lines);

}  // namespace winnow::comm
