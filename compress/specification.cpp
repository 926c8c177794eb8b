// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Specifications of compressors, such as "topk:0.01,int8:block=128": from text and back.
#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>
#include <vector>
#include <winnow/error.hpp>

#include "compress/compressor.hpp"
#include "topology/nearest.hpp"
#include "topology/words.hpp"

namespace winnow::compress {

namespace {

using kernels::ValueCoding;
using kernels::ValueFormat;

constexpr std::array<const Selection*, 5> kSelections{&kNone, &kTopK, &kBlockTopK, &kThreshold,
                                                      &kRandomK};

const ValueCoding* find_value_coding(std::string_view name) {
  const auto codings = kernels::value_codings();
  const auto found = std::ranges::find(codings, name, &ValueCoding::name);
  return found == codings.end() ? nullptr : &*found;
}

/// Whether a specification can ask for the coding.
bool is_chosen(const IndexCoding& coding) {
  return coding.id != 0 && !coding.drawn;
}

const IndexCoding* find_index_coding(std::string_view name) {
  for (const IndexCoding* coding : index_codings()) {
    if (coding->name == name && is_chosen(*coding)) return coding;
  }
  return nullptr;
}

/// Reads ":block=128:stochastic" of a value coding.
void read_arguments(ValueFormat& format, std::string_view arguments) {
  constexpr std::string_view kBlock = "block=";
  const std::string name(format.coding->name);
  while (!arguments.empty()) {
    const std::string_view word = cut(arguments, ':');
    if (word == "stochastic") {
      WINNOW_EXPECTS(format.coding->stochastic, name + " rounds to the nearest only");
      format.rounding = kernels::Rounding::stochastic;
    } else if (word.starts_with(kBlock)) {
      WINNOW_EXPECTS(format.coding->default_block != 0, name + " has no blocks: it has no scales");
      const auto number = word.substr(kBlock.size());
      WINNOW_EXPECTS(
          read_number(number, format.block) && std::has_single_bit(format.block) &&
              format.block >= 64 && format.block <= 65536,
          "block takes a power of two from 64 to 65536, not '" + std::string(number) + "'");
    } else {
      fail_usage(name + " takes block=N or stochastic, not '" + std::string(word) + "'");
    }
  }
}

std::string format_text(const ValueFormat& format) {
  std::string text(format.coding->name);
  if (format.block != format.coding->default_block) {
    text += ":block=" + std::to_string(format.block);
  }
  if (format.rounding == kernels::Rounding::stochastic) text += ":stochastic";
  return text;
}

/// All names of selections and codings.
std::vector<std::string_view> known_words() {
  std::vector<std::string_view> known;
  for (const Selection* selection : kSelections) known.push_back(selection->name);
  for (const ValueCoding& coding : kernels::value_codings()) known.push_back(coding.name);
  for (const IndexCoding* coding : index_codings()) {
    if (is_chosen(*coding)) known.push_back(coding->name);
  }
  return known;
}

/// The name in other libraries and papers, and the name here.
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"dense", "none"},    {"off", "none"},         {"no", "none"},          {"false", "none"},
    {"identity", "none"}, {"top-k", "topk"},       {"top_k", "topk"},       {"sparse", "topk"},
    {"randk", "randomk"}, {"random-k", "randomk"}, {"random_k", "randomk"}, {"random", "randomk"},
    {"float", "float32"}, {"fp32", "float32"},     {"f32", "float32"},      {"bfloat16", "bf16"},
    {"float16", "fp16"},  {"half", "fp16"},        {"f16", "fp16"},         {"e4m3", "fp8"},
    {"float8", "fp8"},    {"8bit", "int8"},        {"qint8", "int8"},       {"4bit", "int4"},
    {"2bit", "int2"},     {"1bit", "sign"},        {"signsgd", "sign"},     {"ternary", "int2"},
    {"terngrad", "int2"}, {"qsgd", "int4"},
};

[[noreturn]] void fail_unknown(std::string_view specification, std::string_view word) {
  const auto elsewhere = std::ranges::find(kElsewhere, word, [](const auto& e) { return e.first; });
  const std::string help = elsewhere != std::end(kElsewhere)
                               ? "did you mean '" + std::string(elsewhere->second) + "'?"
                               : advice(word, known_words());
  fail_usage("unknown compressor '" + std::string(specification) + "'; " + help);
}

bool is_alphanumeric(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

/// With a comma before each coding, where another mark stands.
std::string with_commas(std::string text) {
  for (const std::string_view name : known_words()) {
    for (auto at = text.find(name, 1); at != std::string::npos; at = text.find(name, at + 1)) {
      const auto end = at + name.size();
      const bool whole = end == text.size() || !is_alphanumeric(text[end]);
      if (whole && at > 1 && !is_alphanumeric(text[at - 1])) text[at - 1] = ',';
    }
  }
  return text;
}

/// Without commas that nothing stands behind or before.
std::string without_gaps(std::string_view text) {
  std::string whole;
  while (!text.empty()) {
    const std::string_view word = cut(text, ',');
    if (!word.empty()) whole.append(whole.empty() ? "" : ",").append(word);
  }
  return whole;
}

/// With a colon and a point as they belong into "topk=0,01", "topk(0.01)", "topk0.01".
std::string with_colon(std::string text) {
  const auto digit = text.find_first_of(".0123456789");
  if (digit == std::string::npos || digit == 0) return text;
  const auto name_end = text.find_last_not_of("=@( :_", digit - 1);
  if (name_end == std::string::npos) return text;
  text.replace(name_end + 1, digit - name_end - 1, ":");
  std::erase(text, ')');
  const auto comma = text.find(',');
  const auto is_digit = [&](std::size_t at) {
    return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0;
  };
  if (comma != std::string::npos && is_digit(comma - 1) && is_digit(comma + 1)) text[comma] = '.';
  return text;
}

/// The number of a text that is one but for names of densities before it: "0.01", "k=5",
/// "topk:ratio=1%". Empty for others.
std::string_view bare_density(std::string_view text) {
  constexpr std::string_view kNames[] = {"", "topk", "k", "density", "ratio"};
  for (auto end = text.find_first_of("=:@,"); end != std::string_view::npos;
       end = text.find_first_of("=:@,")) {
    if (std::ranges::find(kNames, text.substr(0, end)) == std::end(kNames)) return {};
    text.remove_prefix(end + 1);
  }
  double number = 0;
  return read_share(text, number) ? text : std::string_view();
}

std::unique_ptr<Compressor> parse(std::string_view specification, std::uint64_t seed);

/// The specification that was probably meant by a wrong one, or empty.
std::string repaired(const std::string& wrong) {
  for (const std::string& other :
       {without_gaps(wrong), with_commas(wrong), with_colon(wrong), with_commas(with_colon(wrong)),
        std::string("topk:").append(bare_density(wrong))}) {
    if (other == wrong) continue;
    try {
      return parse(other, 0)->name();
    } catch (const UsageError&) {
      // Not that one.
    }
  }
  return {};
}

}  // namespace

std::span<const Selection* const> selections() {
  return kSelections;
}

Choice choose_density(const Selection& selection, std::string_view argument, bool takes_sums) {
  constexpr std::string_view kSums = "sums=", kWarmUp = "warmup=";
  const std::string given(argument);
  const auto reads = [](std::string_view text, double& share) {
    return read_share(text, share) && share > 0 && share <= 1;
  };
  Choice choice{.selection = &selection, .argument = 0, .name = std::string(selection.name)};
  bool good = reads(cut(argument, ':'), choice.argument) && !given.ends_with(':');
  while (good && !argument.empty()) {
    const std::string_view word = cut(argument, ':');
    if (takes_sums && choice.sums == 0 && word.starts_with(kSums)) {
      good = reads(word.substr(kSums.size()), choice.sums);
    } else {
      good = choice.warm_up == 0 && word.starts_with(kWarmUp) &&
             read_number(word.substr(kWarmUp.size()), choice.warm_up) && choice.warm_up > 0;
    }
  }
  const auto append = [&choice](std::string_view word, auto number) {
    std::array<char, 32> text;
    (choice.name += ':') += word;
    choice.name.append(text.data(), std::to_chars(text.begin(), text.end(), number).ptr);
  };
  if (!good) {
    const std::string start = choice.name + ":0.01";
    fail_usage(choice.name + (given.empty() ? " needs" : " takes") +
               " a density above 0 and at most 1, such as " + start + " or " + choice.name + ":1%" +
               (takes_sums ? ", perhaps the share that owners keep of their sums, such as " +
                                 start + ":sums=0.03,"
                           : std::string(",")) +
               " and perhaps a number of calls, such as " + start + ":warmup=1000" +
               (given.empty() ? std::string() : ", not '" + given + "'"));
  }
  append({}, choice.argument);
  if (choice.argument == 1) return choose_everything(std::move(choice.name));
  if (choice.sums == choice.argument) choice.sums = 0;
  if (choice.sums > 0) append(kSums, choice.sums);
  if (choice.warm_up > 0) append(kWarmUp, choice.warm_up);
  return choice;
}

std::uint64_t kept_of_density(double density, std::uint64_t count) {
  if (count == 0) return 0;
  // A density written in decimal is rarely a double: 0.07 * 100 is a little over 7, and must keep
  // 7. One part in 10^12 is far below one element and far above the rounding.
  const double exact = density * static_cast<double>(count) * (1 - 1e-12);
  return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(std::ceil(exact)), 1, count);
}

std::string Compressor::name() const {
  std::string text = choice_.name;
  if (codings_.value.coding != Codings().value.coding) {
    if (text == "none") {
      text.clear();
    } else {
      text += ',';
    }
    text += format_text(codings_.value);
  }
  if (codings_.index != nullptr && is_chosen(*codings_.index))
    (text += ',') += codings_.index->name;
  return text;
}

namespace {

std::unique_ptr<Compressor> parse(std::string_view specification, std::uint64_t seed) {
  const Selection* selection = nullptr;
  std::string_view argument;
  Codings codings{.seed = seed};
  bool has_value = false;
  std::string_view rest = specification;
  do {
    std::string_view arguments = cut(rest, ',');
    const std::string_view word = cut(arguments, ':');
    const auto entry = std::ranges::find(kSelections, word, &Selection::name);
    if (entry != kSelections.end() && selection == nullptr && !has_value) {
      selection = *entry;
      argument = arguments;
    } else if (const ValueCoding* value = find_value_coding(word); value != nullptr && !has_value) {
      codings.value = {.coding = value, .block = value->default_block};
      read_arguments(codings.value, arguments);
      has_value = true;
    } else if (const IndexCoding* index = find_index_coding(word);
               index != nullptr && codings.index == nullptr && selection != nullptr) {
      WINNOW_EXPECTS(arguments.empty(), std::string(word) + " takes no argument, not '" +
                                            std::string(arguments) + "'");
      codings.index = index;
    } else if (entry != kSelections.end() || value != nullptr || index != nullptr) {
      std::string text("'");
      text.append(word).append("' has no place there in '").append(specification);
      fail_usage(text +
                 "'; write SELECTION[:ARGUMENT][,VALUE[:block=N][:stochastic]][,INDEX], such as "
                 "topk:0.01,int8,eliasfano");
    } else {
      fail_unknown(specification, word);
    }
  } while (!rest.empty());
  if (selection == nullptr) selection = &kNone;
  Choice choice = selection->parse(argument, codings);
  const ValueCoding& value = *codings.value.coding;
  const auto* const chooses = std::get_if<Chooses>(&choice.selection->support);
  WINNOW_EXPECTS(!value.one_sign || (chooses != nullptr && chooses->takes_side),
                 std::string(specification) + " has values of both signs, and " +
                     std::string(value.name) + " is for those of one, which topk:DENSITY," +
                     std::string(value.name) + " selects");
  if (const auto* const draws = std::get_if<Draws>(&choice.selection->support)) {
    WINNOW_EXPECTS(codings.index == nullptr,
                   std::string(specification) + " sends no positions: every rank draws them");
    codings.index = draws->coding;
  }
  auto compressor = std::make_unique<Compressor>(std::move(choice), codings);
  WINNOW_EXPECTS(codings.index == nullptr || !compressor->keeps_all(),
                 std::string(specification) +
                     " sends every element, which leaves nothing for an "
                     "index coding to say");
  return compressor;
}

}  // namespace

std::unique_ptr<Compressor> make_compressor(std::string_view specification, std::uint64_t seed) {
  const std::string text = lower_case(without_blanks(specification, ":,=/%"));
  WINNOW_EXPECTS(!text.empty(),
                 "the compressor is empty: write topk:0.01, say, or none to send every element");
  try {
    return parse(text, seed);
  } catch (const UsageError&) {
    const std::string meant = repaired(text);
    if (meant.empty() && bare_density(text).empty()) throw;
    fail_usage("no compressor is written '" + std::string(specification) + "'; " +
               (meant.empty()
                    ? "write topk:DENSITY, the share of elements that travel, above 0 and "
                      "at most 1, such as topk:0.01 or topk:1%"
                    : "did you mean '" + meant + "'?"));
  }
}

}  // namespace winnow::compress
