// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/differences.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/plan/hash.hpp"
#include "topology/words.hpp"

namespace winnow::comm {
namespace {

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) words.push_back(cut(text, ' '));
  return words;
}

/// "rank 3" or "ranks 0-2, 5".
std::string ranks_text(std::span<const std::size_t> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::size_t first = ranks[i];
    while (i + 1 < ranks.size() && ranks[i + 1] == ranks[i] + 1) ++i;
    if (first != ranks.front()) text += ", ";
    text += std::to_string(first);
    if (ranks[i] != first) text.append(1, '-').append(std::to_string(ranks[i]));
  }
  return text;
}

struct Holders {
  std::string_view value;
  std::vector<std::size_t> ranks;
};

/// Who has which value of the option that is word number `number` of the texts.
std::vector<Holders> holders_of(std::span<const std::vector<std::string_view>> texts,
                                std::size_t number) {
  std::vector<Holders> all;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    std::string_view value = number < texts[rank].size() ? texts[rank][number] : "?";
    (void)cut(value, '=');
    const auto known = std::ranges::find(all, value, &Holders::value);
    if (known == all.end()) {
      all.push_back({.value = value, .ranks = {rank}});
    } else {
      known->ranks.push_back(rank);
    }
  }
  return all;
}

}  // namespace

std::string abridged_options(std::string_view options) {
  constexpr std::size_t kMostValue = 240;
  std::string text;
  for (const std::string_view word : words_of(options)) {
    if (!text.empty()) text += ' ';
    text += word.substr(0, kMostValue);
    if (word.size() > kMostValue)
      text.append("...#").append(std::to_string(Hash().add(word).value()));
  }
  return text.substr(0, kMostWords);
}

std::string option_differences(std::span<const std::string_view> texts) {
  constexpr std::size_t kMostValues = 4;
  std::vector<std::vector<std::string_view>> words;
  for (const std::string_view text : texts) words.push_back(words_of(text));
  std::string result;
  for (std::size_t number = 0; !words.empty() && number < words.front().size(); ++number) {
    const std::vector<Holders> holders = holders_of(words, number);
    if (holders.size() == 1) continue;
    std::string_view name = words.front()[number];
    if (!result.empty()) result += "; ";
    result.append(cut(name, '=')) += " is ";
    for (std::size_t i = 0; i < std::min(holders.size(), kMostValues); ++i) {
      if (i > 0) result += " and ";
      result.append(holders[i].value.empty() ? "empty" : holders[i].value) +=
          " on " + ranks_text(holders[i].ranks);
    }
    if (holders.size() > kMostValues) result += " and others elsewhere";
  }
  return result;
}

std::string first_difference(std::string_view their_lines, std::string_view our_lines) {
  while (!their_lines.empty() || !our_lines.empty()) {
    const std::string_view theirs = cut(their_lines, '\n'), ours = cut(our_lines, '\n');
    if (theirs == ours) continue;
    const auto text = [](std::string_view line) {
      return line.empty() ? std::string("no more parameters") : std::string(line);
    };
    return text(theirs) + " there and " + text(ours) + " here";
  }
  return {};
}

}  // namespace winnow::comm
