// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::comm {

/// An option as it is written, "name=value".
struct OptionWord {
  std::string name, value;  ///< the name in small letters
};

/// Cuts "name=value" words out of a text. Blanks and ';' separate them; blanks beside '=' and
/// beside
/// ',', ':', '+' and '/' in a value do not, and the words of links may stand apart. `names` are
/// those of all options. Throws UsageError for a word that is none, and says how it is written.
std::vector<OptionWord> cut_option_words(std::string_view text,
                                         std::span<const std::string_view> names);

/// A hint for an unknown option name that other libraries use: how to write it here. Empty if the
/// name is unknown everywhere.
std::string option_elsewhere(std::string_view name, std::string_view value);
/// The nearest of the names that option_elsewhere knows; empty if none is near.
std::string_view nearest_elsewhere(std::string_view name);

}  // namespace winnow::comm
