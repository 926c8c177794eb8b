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
#include <utility>

#include "comm/schedule/schedule.hpp"
#include "compress/compressor.hpp"
#include "compress/nearest.hpp"
#include "compress/precondition.hpp"
#include "topology/link_model.hpp"
#include "winnow/error.hpp"

namespace winnow {
namespace {

/// The links as one word.
std::string links_text(std::string_view text) {
  return text.empty() ? std::string() : LinkModel::parse(text).to_string('+');
}

/// Indexed by ReduceOp.
constexpr std::array<std::string_view, 5> kOps = {"sum", "average", "min", "max", "product"};

/// Indexed by ResidualMemory.
constexpr std::array<std::string_view, 2> kResidualMemories = {"device", "pinned_host"};

/// Indexed by Checksum.
constexpr std::array<std::string_view, 2> kChecksums = {"headers", "all"};

/// Options under a name: what a paper does, or a library that people know. docs/options.md has the
/// sources. Words that follow override them.
constexpr std::pair<std::string_view, std::string_view> kPresets[] = {
    {"dgc", "compressor=topk:0.001:warmup=1000 precondition=momentum:0.9:masked schedule=gather"},
    {"oktopk", "compressor=topk:0.01 schedule=balanced"},
    {"onebit", "compressor=sign schedule=balanced"},
    {"qgz", "compressor=int4 schedule=two_level:balanced decay=0"},
    {"redsync", "compressor=topk:0.001,mean:block=65536 schedule=gather min_bytes=131072"},
    {"scalecom", "compressor=topk:0.01 schedule=shared"},
    {"sparcml", "compressor=topk:0.01 schedule=doubling"},
    {"sparseloco", "compressor=blocktopk:64/4096,int2 schedule=gather decay=0.95"},
    {"swcaffe", "compressor=none schedule=two_level:balanced"},
    {"zen", "compressor=threshold,bitmap schedule=balanced"},
};
constexpr std::string_view kPreset = "preset";

void read_preset(Options& options, std::string_view name) {
  const auto preset = std::ranges::find(kPresets, name, [](const auto& p) { return p.first; });
  if (preset != std::end(kPresets)) {
    options = Options::parse(preset->second, options);
    return;
  }
  std::string text = "option preset takes one of";
  for (const auto& known : kPresets) (text += ' ') += known.first;
  fail_usage(text + ", not '" + std::string(name) + "'");
}

/// A line of the table of options: how to read a key into Options and write it back.
struct Key {
  std::string_view name;
  void (*read)(Options&, const Key& key, std::string_view text);
  std::string (*write)(const Options&);  // null: it stands for others
  std::string_view right = {};           // what it takes, for error messages
};

[[noreturn]] void refuse(const Key& key, std::string_view value) {
  fail_usage("option " + std::string(key.name) + " takes " + std::string(key.right) + ", not '" +
             std::string(value) + "'");
}

/// A number from 0 to kMost.
template <auto kMember, std::uint64_t kMost>
constexpr Key number_key(std::string_view name, std::string_view right) {
  return {name,
          [](Options& o, const Key& key, std::string_view text) {
            auto number = o.*kMember;
            const char* const last = text.data() + text.size();
            const auto [end, error] = std::from_chars(text.data(), last, number);
            const auto most = static_cast<decltype(number)>(kMost);
            const bool fits = number >= decltype(number){} && number <= most;
            if (error != std::errc() || end != last || !fits) refuse(key, text);
            o.*kMember = number;
          },
          [](const Options& o) {
            std::array<char, 32> text;
            char* const end = std::to_chars(text.begin(), text.end(), o.*kMember).ptr;
            return std::string(text.data(), end);
          },
          right};
}

template <auto kMember>
constexpr Key bool_key(std::string_view name) {
  return {name,
          [](Options& o, const Key& key, std::string_view text) {
            o.*kMember = text == "1" || text == "true" || text == "yes" || text == "on";
            const bool no = text == "0" || text == "false" || text == "no" || text == "off";
            if (!(o.*kMember || no)) refuse(key, text);
          },
          [](const Options& o) { return std::string(o.*kMember ? "1" : "0"); }, "0 or 1"};
}

/// A value of an enumeration, by its index among kWords.
template <auto kMember, const auto& kWords>
constexpr Key word_key(std::string_view name, std::string_view right) {
  return {name,
          [](Options& o, const Key& key, std::string_view text) {
            const auto word = std::ranges::find(kWords, text);
            if (word == kWords.end()) refuse(key, text);
            o.*kMember = static_cast<std::decay_t<decltype(o.*kMember)>>(word - kWords.begin());
          },
          [](const Options& o) {
            const auto word = static_cast<std::size_t>(o.*kMember);
            WINNOW_EXPECTS(word < kWords.size(),
                           "an option that takes one of " + std::to_string(kWords.size()) +
                               " words has the value " + std::to_string(word));
            return std::string(kWords[word]);
          },
          right};
}

constexpr std::array kKeys = {
    Key{kPreset, [](Options& o, const Key&, std::string_view t) { read_preset(o, t); }, nullptr},
    Key{"compressor",
        [](Options& o, const Key&, std::string_view t) {
          o.compressor = compress::make_compressor(t)->name();
        },
        [](const Options& o) { return o.compressor; }},
    Key{"schedule",
        [](Options& o, const Key&, std::string_view t) {
          (void)comm::find_schedules(t);
          o.schedule = t;
        },
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
    number_key<&Options::min_bytes, UINT64_MAX>("min_bytes", "a whole number of bytes"),
    bool_key<&Options::exempt_1d>("exempt_1d"),
    Key{"exempt",
        [](Options& o, const Key&, std::string_view t) {
          o.exempt.clear();
          while (!t.empty()) {
            const auto comma = t.find(',');
            if (comma != 0) o.exempt.emplace_back(t.substr(0, comma));
            t = comma == std::string_view::npos ? std::string_view() : t.substr(comma + 1);
          }
        },
        [](const Options& o) {
          std::string text;
          for (const std::string& pattern : o.exempt) text += (text.empty() ? "" : ",") + pattern;
          return text;
        }},
    number_key<&Options::max_part, Options::kMaxPart>(
        "max_part", "a number of elements from 1 to 2^32 - 64, 0 for the default"),
    number_key<&Options::seed, UINT64_MAX>("seed", "a whole number"),
    number_key<&Options::deadline, 1'000'000'000>("deadline", "seconds, 0 for the default"),
    number_key<&Options::threads, 4096>("threads", "a number of threads, 0 for the default"),
    word_key<&Options::checksum, kChecksums>("checksum", "headers or all"),
    word_key<&Options::residual_memory, kResidualMemories>("residual_memory",
                                                           "device or pinned_host"),
    bool_key<&Options::enable>("enable"),
    number_key<&Options::stats, 2>("stats", "0, 1 (a table) or 2 (measure, too)"),
    number_key<&Options::debug, 3>("debug", "a level from 0 to 3"),
};

constexpr std::string_view kPrefix = "WINNOW_";

std::string each_char(std::string_view text, int (*change)(int)) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(change(static_cast<unsigned char>(c)));
  return result;
}

/// The key of that name; otherwise null, and the nearest known name.
const Key* find_key(std::string_view name, std::string_view& nearest) {
  std::vector<std::string_view> known;
  for (const Key& key : kKeys) {
    if (key.name == name) return &key;
    known.push_back(key.name);
  }
  nearest = compress::nearest_word(name, known);
  return nullptr;
}

/// Whether an unknown variable's name, without the prefix, is probably an option misspelt. Others
/// have variables with this prefix too: CMake's WINNOW_ROOT and WINNOW_DIR, and Winnow's own
/// programs and bindings under the reserved prefixes.
bool is_misspelt(std::string_view name, std::string_view nearest) {
  constexpr std::string_view kReserved[] = {"mpi_", "nccl_", "tcp_", "torch_"};
  const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
  return std::ranges::none_of(kReserved, begins) &&
         compress::edit_distance(name, nearest) <= std::max<std::size_t>(1, nearest.size() / 4);
}

}  // namespace

Options Options::parse(std::string_view text, const Options& base) {
  constexpr std::string_view kBlanks = " \t\n;";
  Options options = base;
  for (std::size_t at = text.find_first_not_of(kBlanks); at != std::string_view::npos;
       at = text.find_first_not_of(kBlanks, at)) {
    const auto end = std::min(text.find_first_of(kBlanks, at), text.size());
    const auto word = text.substr(at, end - at);
    const auto equals = word.find('=');
    if (equals == std::string_view::npos) {
      fail_usage("options are written key=value, not '" + std::string(word) + "'");
    }
    const auto name = word.substr(0, equals);
    std::string_view nearest;
    const Key* key = find_key(name, nearest);
    WINNOW_EXPECTS(key != nullptr, "unknown option '" + std::string(name) + "'; did you mean '" +
                                       std::string(nearest) + "'?");
    key->read(options, *key, word.substr(equals + 1));
    at = end;
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
    std::string_view nearest;
    const Key* key = find_key(option, nearest);
    if (key == nullptr && !is_misspelt(option, nearest)) continue;
    WINNOW_EXPECTS(key != nullptr, "unknown environment variable '" + std::string(name) +
                                       "'; did you mean '" + std::string(kPrefix) +
                                       each_char(nearest, std::toupper) + "'?");
    key->read(options, *key, variable.substr(equals + 1));
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
