// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "winnow/options.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <utility>

#include "comm/plan/checked_options.hpp"
#include "comm/plan/option_words.hpp"
#include "comm/plan/presets.hpp"
#include "comm/schedule/schedule.hpp"
#include "compress/compressor.hpp"
#include "compress/precondition.hpp"
#include "topology/link_model.hpp"
#include "topology/nearest.hpp"
#include "topology/words.hpp"
#include "winnow/error.hpp"

namespace winnow {
namespace {

/// The links as one word.
std::string links_text(std::string_view text) {
  if (without_blanks(text, {}) == Options::kMeasured) return std::string(Options::kMeasured);
  return text.find_first_not_of(kBlanks) == std::string_view::npos
             ? std::string()
             : LinkModel::parse(without_blanks(text, "=,+")).to_string('+');
}

/// Another word for a value of an enumeration, by its index. Not `taken`: what somebody writes who
/// means that, for the text of an error.
struct OtherWord {
  std::string_view word;
  std::size_t index;
  bool taken = true;
};

/// The words of an enumeration's values, in their order, and others.
struct Words {
  std::span<const std::string_view> names;
  std::span<const OtherWord> others = {};
};

constexpr std::array<std::string_view, 5> kOpNames = {"sum", "average", "min", "max", "product"};
constexpr OtherWord kOtherOps[] = {{"mean", 1},
                                   {"avg", 1},
                                   {"minimum", 2},
                                   {"maximum", 3},
                                   {"prod", 4},
                                   {"add", 0, false},
                                   {"plus", 0, false},
                                   {"mpi_sum", 0, false},
                                   {"ncclsum", 0, false},
                                   {"ncclavg", 1, false},
                                   {"mpi_min", 2, false},
                                   {"ncclmin", 2, false},
                                   {"mpi_max", 3, false},
                                   {"ncclmax", 3, false},
                                   {"mul", 4, false},
                                   {"multiply", 4, false},
                                   {"mpi_prod", 4, false},
                                   {"ncclprod", 4, false}};
constexpr Words kOps = {kOpNames, kOtherOps};

constexpr std::array<std::string_view, 2> kResidualMemoryNames = {"device", "pinned_host"};
constexpr OtherWord kOtherResidualMemories[] = {{"gpu", 0, false},
                                                {"cuda", 0, false},
                                                {"host", 1, false},
                                                {"cpu", 1, false},
                                                {"pinned", 1, false}};
constexpr Words kResidualMemories = {kResidualMemoryNames, kOtherResidualMemories};

constexpr std::array<std::string_view, 3> kRowCodingNames = {"exact", "bf16", "int8"};
constexpr OtherWord kOtherRowCodings[] = {{"float32", 0, false},  {"fp32", 0, false},
                                          {"none", 0, false},     {"lossless", 0, false},
                                          {"bfloat16", 1, false}, {"8bit", 2, false}};
constexpr Words kRowCodings = {kRowCodingNames, kOtherRowCodings};

constexpr std::array<std::string_view, 2> kChecksumNames = {"headers", "all"};
constexpr OtherWord kOtherChecksums[] = {{"on", 1, false},   {"1", 1, false}, {"true", 1, false},
                                         {"off", 0, false},  {"0", 0, false}, {"none", 0, false},
                                         {"false", 0, false}};
constexpr Words kChecksums = {kChecksumNames, kOtherChecksums};

constexpr std::array<std::string_view, 2> kBoolNames = {"0", "1"};
constexpr OtherWord kOtherBools[] = {{"false", 0},
                                     {"no", 0},
                                     {"off", 0},
                                     {"true", 1},
                                     {"yes", 1},
                                     {"on", 1},
                                     {"disabled", 0, false},
                                     {"none", 0, false},
                                     {"enabled", 1, false}};
constexpr Words kBools = {kBoolNames, kOtherBools};

constexpr std::string_view kPreset = "preset";

void read_preset(Options& options, std::string_view text) {
  const std::string name = lower_case(without_blanks(text, {}));
  const std::string_view words = comm::preset_words(name);
  if (words.empty()) {
    fail_usage("option preset takes one of " + comm::preset_names() + ", not '" +
               std::string(text) + "'");
  }
  options = Options::parse(words, options);
}

/// A preset is no compressor, though some are known by its name.
void read_compressor(Options& options, std::string_view text) {
  const std::string name = lower_case(without_blanks(text, {}));
  if (const std::string_view words = comm::preset_words(name); !words.empty()) {
    fail_usage("'" + name + "' is a preset, not a compressor; write preset=" + name +
               ", which stands for " + std::string(words));
  }
  options.compressor = compress::make_compressor(text)->name();
}

/// Options::to_string joins patterns, so they must not contain its separators; nor a '=', which
/// stands in options.
void check_pattern(std::string_view pattern) {
  const bool good =
      !pattern.empty() && pattern.find_first_of(" \t\n\r\v\f;,=") == std::string_view::npos;
  WINNOW_EXPECTS(good,
                 "option exempt takes shell patterns without blanks, ';', ',' and '=', not '" +
                     std::string(pattern) + "'; a '?' stands for any character");
}

void read_patterns(Options& options, std::string_view text) {
  const std::string patterns = without_blanks(text, ",");
  options.exempt.clear();
  for (std::string_view rest = patterns; !rest.empty();) {
    const std::string_view pattern = cut(rest, ',');
    if (pattern.empty()) continue;
    check_pattern(pattern);
    options.exempt.emplace_back(pattern);
  }
}

std::string patterns_text(const Options& options) {
  std::string text;
  for (const std::string& pattern : options.exempt) {
    check_pattern(pattern);
    text += (text.empty() ? "" : ",") + pattern;
  }
  return text;
}

/// A line of the table of options: how to read a key into Options and write it back.
struct Key {
  std::string_view name;
  void (*read)(Options&, const Key& key, std::string_view text);
  std::string (*write)(const Options&);  // null: it stands for others
  std::string_view right = {};           // what it takes, for error messages
};

[[noreturn]] void refuse(const Key& key, std::string_view value, std::string_view meant = {}) {
  std::string text = "option " + std::string(key.name) + " takes " + std::string(key.right) +
                     ", not '" + std::string(value) + "'";
  if (!meant.empty()) {
    text += "; did you mean '" + std::string(key.name) + "=" + std::string(meant) + "'?";
  }
  fail_usage(text);
}

/// The digits of "1,000" or "1_000", which are not grouped here; empty for other texts.
std::string ungrouped(std::string_view text) {
  constexpr std::string_view kMarks = ",_'", kDigits = "0123456789";
  constexpr std::size_t kGroup = 3;
  auto digits = std::min(text.find_first_not_of(kDigits), text.size());
  std::string whole(text.substr(0, digits));
  if (digits == 0 || digits > kGroup) return {};
  bool has_marks = false;
  for (text.remove_prefix(digits);
       !text.empty() && kMarks.find(text.front()) != std::string_view::npos;) {
    text.remove_prefix(1);
    digits = std::min(text.find_first_not_of(kDigits), text.size());
    if (digits != kGroup) return {};
    whole += text.substr(0, digits);
    text.remove_prefix(digits);
    has_marks = true;
  }
  return has_marks ? whole.append(text) : std::string();
}

/// A number from 0 to kMost.
template <auto kMember, std::uint64_t kMost>
constexpr Key number_key(std::string_view name, std::string_view right) {
  return {name,
          [](Options& o, const Key& key, std::string_view text) {
            auto number = o.*kMember;
            const auto reads = [&](std::string_view digits) {
              return read_number(digits, number) && number >= decltype(number){} &&
                     number <= static_cast<decltype(number)>(kMost);
            };
            if (!reads(without_blanks(text, {}))) {
              const std::string digits = ungrouped(text);
              refuse(key, text, reads(digits) ? digits : "");
            }
            o.*kMember = number;
          },
          [](const Options& o) { return number_text(o.*kMember); }, right};
}

template <auto kMember>
constexpr Key bytes_key(std::string_view name) {
  return {name,
          [](Options& o, const Key& key, std::string_view text) {
            const auto bytes = read_bytes(without_blanks(text, {}));
            const std::string digits = ungrouped(text);
            if (!bytes) refuse(key, text, read_bytes(digits) ? digits : "");
            o.*kMember = *bytes;
          },
          [](const Options& o) { return number_text(o.*kMember); },
          "a whole number of bytes, such as 65536, 64K or 64KiB (by 1024) or 64kB (by 1000), in "
          "small letters or capitals"};
}

/// A value of an enumeration.
template <auto kMember, const Words& kWords>
constexpr Key word_key(std::string_view name, std::string_view right) {
  return {name,
          [](Options& o, const Key& key, std::string_view text) {
            const std::string word = lower_case(without_blanks(text, {}));
            const auto named = std::ranges::find(kWords.names, word);
            auto index = static_cast<std::size_t>(named - kWords.names.begin());
            if (named == kWords.names.end()) {
              const auto other = std::ranges::find(kWords.others, word, &OtherWord::word);
              const bool known = other != kWords.others.end();
              if (!known || !other->taken) {
                refuse(key, text,
                       known ? kWords.names[other->index] : nearest_word(word, kWords.names));
              }
              index = other->index;
            }
            o.*kMember = static_cast<std::decay_t<decltype(o.*kMember)>>(index);
          },
          [](const Options& o) {
            const auto index = static_cast<std::size_t>(o.*kMember);
            WINNOW_EXPECTS(index < kWords.names.size(), "an option has the value " +
                                                            std::to_string(index) +
                                                            ", which none of its words stands for");
            return std::string(kWords.names[index]);
          },
          right};
}

constexpr std::array kKeys = {
    Key{kPreset, [](Options& o, const Key&, std::string_view t) { read_preset(o, t); }, nullptr},
    Key{"compressor", [](Options& o, const Key&, std::string_view t) { read_compressor(o, t); },
        [](const Options& o) { return o.compressor; }},
    Key{"schedule",
        [](Options& o, const Key&, std::string_view t) { o.schedule = comm::schedule_word(t); },
        [](const Options& o) { return o.schedule; }},
    Key{"links", [](Options& o, const Key&, std::string_view t) { o.links = links_text(t); },
        [](const Options& o) { return links_text(o.links); }},
    number_key<&Options::trial_calls, 1000>("trial_calls", "a number of calls from 0 to 1000"),
    word_key<&Options::op, kOps>("op", "sum, average, min, max or product"),
    number_key<&Options::decay, 1>("decay", "a number from 0 to 1"),
    Key{"precondition",
        [](Options& o, const Key&, std::string_view t) {
          o.precondition = compress::Preconditioner(t).name();
        },
        [](const Options& o) { return o.precondition; }},
    bytes_key<&Options::min_bytes>("min_bytes"),
    word_key<&Options::exempt_1d, kBools>("exempt_1d", "0 or 1"),
    Key{"exempt", [](Options& o, const Key&, std::string_view t) { read_patterns(o, t); },
        patterns_text},
    word_key<&Options::rows, kRowCodings>("rows", "exact, bf16 or int8"),
    number_key<&Options::max_part, Options::kMaxPart>(
        "max_part", "a number of elements from 1 to 2^32 - 64, 0 for the default"),
    number_key<&Options::seed, UINT64_MAX>("seed", "a whole number"),
    number_key<&Options::deadline, 1'000'000'000>("deadline", "seconds, 0 for the default"),
    number_key<&Options::threads, 4096>("threads", "a number of threads, 0 for the default"),
    word_key<&Options::checksum, kChecksums>("checksum", "headers or all"),
    word_key<&Options::residual_memory, kResidualMemories>("residual_memory",
                                                           "device or pinned_host"),
    word_key<&Options::enable, kBools>("enable", "0 or 1"),
    number_key<&Options::stats, 2>("stats", "0, 1 (a table) or 2 (measure, too)"),
    number_key<&Options::debug, 3>("debug", "a level from 0 to 3"),
};

/// Indexed like kKeys.
constexpr auto kNames = [] {
  std::array<std::string_view, kKeys.size()> names;
  std::ranges::transform(kKeys, names.begin(), &Key::name);
  return names;
}();

constexpr std::string_view kPrefix = "WINNOW_";

std::string each_char(std::string_view text, int (*change)(int)) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(change(static_cast<unsigned char>(c)));
  return result;
}

/// The key of that name, or null.
const Key* find_key(std::string_view name) {
  const auto key = std::ranges::find(kKeys, name, &Key::name);
  return key == kKeys.end() ? nullptr : key;
}

/// Whether an unknown variable's name, without the prefix, is probably an option misspelt. Others
/// have variables with this prefix too: CMake's WINNOW_ROOT and WINNOW_DIR, and Winnow's own
/// programs and bindings under the reserved prefixes.
bool is_misspelt(std::string_view name, std::string_view nearest) {
  constexpr std::string_view kReserved[] = {"mpi_", "nccl_", "tcp_", "torch_"};
  const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
  return !nearest.empty() && std::ranges::none_of(kReserved, begins) &&
         edit_distance(name, nearest) <= std::max<std::size_t>(1, nearest.size() / 4);
}

}  // namespace

namespace comm {

Options checked(const Options& given) {
  Options options = given;
  for (const Key& key : kKeys) {
    if (key.write != nullptr) key.read(options, key, key.write(given));
  }
  return options;
}

}  // namespace comm

Options Options::parse(std::string_view text, const Options& base) {
  Options options = base;
  for (const auto& [name, value] : comm::cut_option_words(text, kNames)) {
    const Key* const key = find_key(name);
    if (key == nullptr) {
      std::string elsewhere = comm::option_elsewhere(name, value);
      const std::string_view other = comm::nearest_elsewhere(name);
      if (elsewhere.empty() && !other.empty() && nearest_word(name, kNames).empty())
        elsewhere = comm::option_elsewhere(other, value);
      fail_usage("unknown option '" + name + "'; " +
                 (elsewhere.empty() ? advice(name, kNames) : "write " + elsewhere));
    }
    key->read(options, *key, value);
  }
  return options;
}

Options Options::parse(std::string_view text) {
  return parse(text, Options());
}

Options Options::from_environment(const Options& base) {
  Options options = base;
  const std::string preset = std::string(kPrefix) + each_char(kPreset, std::toupper);
  if (const char* const name = std::getenv(preset.c_str()); name != nullptr) {
    read_preset(options, name);  // before variables that override it
  }
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const auto equals = variable.find('=');
    if (!variable.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    const auto name = variable.substr(0, equals);
    const std::string option = each_char(name.substr(kPrefix.size()), std::tolower);
    if (option == kPreset) continue;
    const std::string_view value = variable.substr(equals + 1);
    const Key* const key = find_key(option);
    if (key != nullptr) {
      try {
        key->read(options, *key, value);
      } catch (const UsageError& error) {
        fail_usage("environment variable " + std::string(name) + ": " + error.what());
      }
      continue;
    }
    const std::string_view nearest = nearest_word(option, kNames);
    const std::string elsewhere = comm::option_elsewhere(option, value);
    WINNOW_EXPECTS(elsewhere.empty(), "unknown environment variable '" + std::string(name) +
                                          "'; write the option " + elsewhere);
    WINNOW_EXPECTS(!is_misspelt(option, nearest),
                   "unknown environment variable '" + std::string(name) + "'; did you mean '" +
                       std::string(kPrefix) + each_char(nearest, std::toupper) + "'?");
  }
  return options;
}

Options Options::from_environment() {
  return from_environment(Options());
}

std::string Options::to_string() const {
  std::string text;
  for (const Key& key : kKeys) {
    if (key.write == nullptr) continue;
    if (!text.empty()) text += ' ';
    text += std::string(key.name) + '=' + key.write(*this);
  }
  return text;
}

}  // namespace winnow
