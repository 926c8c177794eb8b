// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/winnow/recipes.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>
#include <vector>
#include <winnow/error.hpp>

#include "recipes_text.hpp"
#include "topology/nearest.hpp"

namespace tool {

namespace {

std::string lower(std::string_view text) {
  std::string made(text);
  std::ranges::transform(made, made.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return made;
}

/// The words between `separator`s, without spaces around them.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);) {
    const auto first = word.find_first_not_of(' ');
    words.push_back(first == std::string::npos
                        ? std::string()
                        : word.substr(first, word.find_last_not_of(' ') + 1 - first));
  }
  return words;
}

}  // namespace

Recipe recipe_of(std::string_view optimizer) {
  std::vector<std::string> names;
  for (const std::string& line : split(kRecipes, '\n')) {
    if (line.starts_with('#')) continue;
    const std::vector<std::string> columns = split(line, '|');
    for (const std::string& name : split(columns.at(0), ',')) {
      names.push_back(lower(name));
      if (names.back() == lower(optimizer)) {
        return {columns.at(0), columns.at(1), columns.at(2), columns.at(3), columns.at(4)};
      }
    }
  }
  const std::vector<std::string_view> known(names.begin(), names.end());
  winnow::fail_usage("no recipe for optimizer '" + std::string(optimizer) + "'; " +
                     winnow::advice(lower(optimizer), known));
}

}  // namespace tool
