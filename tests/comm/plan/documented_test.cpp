// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Where a document lists a table's rows, it lists all of them and nothing else.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <string_view>

#include "comm/schedule/schedule.hpp"
#include "compress/compressor.hpp"
#include "compress/index_coding.hpp"

namespace winnow::tests {
namespace {

using Names = std::set<std::string>;

std::string text_of(const std::string& file) {
  std::ifstream in("../" + file);
  EXPECT_TRUE(in) << "no file " << file;
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The text from `begin` to the next `end`, without both.
std::string between(const std::string& text, std::string_view begin, std::string_view end) {
  const auto at = text.find(begin);
  if (at == std::string::npos) {
    ADD_FAILURE() << "no text '" << begin << "'";
    return {};
  }
  const auto from = at + begin.size();
  return text.substr(from, text.find(end, from) - from);
}

/// The first group of each match.
Names matches(const std::string& text, const char* pattern) {
  const std::regex expression(pattern);
  Names names;
  for (std::sregex_iterator at(text.begin(), text.end(), expression), end; at != end; ++at) {
    names.insert((*at)[1]);
  }
  return names;
}

Names value_codings() {
  Names names;
  for (const auto& coding : kernels::value_codings()) names.emplace(coding.name);
  return names;
}

TEST(Documented, OptionsOfCompressors) {
  const std::string options = text_of("docs/options.md");
  Names selections, index_codings;
  for (const auto* selection : compress::selections()) selections.emplace(selection->name);
  for (const auto* coding : compress::index_codings()) {
    if (coding->id != 0 && !coding->drawn) index_codings.emplace(coding->name);
  }
  // `topk:DENSITY[:warmup=CALLS]` is topk's.
  constexpr const char* kQuoted = "`([a-z0-9]+)[^`]*`";
  EXPECT_EQ(matches(between(options, "| selection |", "|"), kQuoted), selections);
  EXPECT_EQ(matches(between(options, "| value coding |", "|"), kQuoted), value_codings());
  EXPECT_EQ(matches(between(options, "| index coding |", "|"), kQuoted), index_codings);
  const std::string header = text_of("include/winnow/options.hpp");
  EXPECT_EQ(matches(between(header, "VALUE:", "("), "([a-z0-9]+)(?:,| or| $)"), value_codings());
}

TEST(Documented, CodingsOfMessages) {
  std::string values = "0 none", indices;
  for (const auto& coding : kernels::value_codings()) {
    values.append(", ").append(std::to_string(coding.id)).append(" ").append(coding.name);
  }
  for (const auto* coding : compress::index_codings()) {
    indices.append(indices.empty() ? "" : ", ").append(std::to_string(coding->id)).append(" ");
    indices.append(coding->name);
  }
  const std::string format = text_of("docs/message_format.md");
  EXPECT_EQ(between(format, "| value coding | low 4 bits: ", ";"), values);
  EXPECT_EQ(between(format, "| index coding | ", " |"), indices);
}

TEST(Documented, Schedules) {
  Names schedules;
  for (const comm::Schedule* schedule : comm::schedules()) {
    schedules.emplace(schedule->inner == nullptr ? schedule->name : "two_level");
  }
  const std::string table = between(text_of("docs/schedules.md"), "| schedule |", "\n\n");
  EXPECT_EQ(matches(table, "\n\\| `([a-z_]+)`"), schedules);
}

}  // namespace
}  // namespace winnow::tests
