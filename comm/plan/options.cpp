// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "winnow/options.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstddef>

#include "comm/schedule/schedule.hpp"
#include "compress/compressor.hpp"
#include "compress/nearest.hpp"
#include "topology/link_model.hpp"
#include "winnow/error.hpp"

namespace winnow {
namespace {

[[noreturn]] void refuse(std::string_view key, std::string_view value, std::string_view right) {
  fail_usage("option " + std::string(key) + " takes " + std::string(right) + ", not '" +
             std::string(value) + "'");
}

bool parse_bool(std::string_view key, std::string_view text) {
  if (text == "1" || text == "true" || text == "yes" || text == "on") return true;
  if (text == "0" || text == "false" || text == "no" || text == "off") return false;
  refuse(key, text, "0 or 1");
}

template <class Number>
Number parse_number(std::string_view key, std::string_view text, Number low, Number high,
                    std::string_view right) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || !(number >= low && number <= high)) refuse(key, text, right);
  return number;
}

template <class Number>
std::string number_text(Number number) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.begin(), text.end(), number).ptr};
}

/// The links as one word.
std::string links_text(std::string_view text) {
  return text.empty() ? std::string() : LinkModel::parse(text).to_string('+');
}

/// Indexed by ReduceOp.
constexpr std::array<std::string_view, 5> kOps = {"sum", "average", "min", "max", "product"};

/// Indexed by ResidualMemory.
constexpr std::array<std::string_view, 2> kResidualMemories = {"device", "pinned_host"};

/// A line of the table of options: how to read a key into Options and write it back.
struct Key {
  std::string_view name;
  void (*read)(Options&, std::string_view key, std::string_view text);
  std::string (*write)(const Options&);
};

constexpr std::array kKeys = {
    Key{"compressor",
        [](Options& o, std::string_view, std::string_view t) {
          o.compressor = compress::make_compressor(t)->name();
        },
        [](const Options& o) { return o.compressor; }},
    Key{"schedule",
        [](Options& o, std::string_view, std::string_view t) {
          (void)comm::find_schedules(t);
          o.schedule = t;
        },
        [](const Options& o) { return o.schedule; }},
    Key{"links", [](Options& o, std::string_view, std::string_view t) { o.links = links_text(t); },
        [](const Options& o) { return links_text(o.links); }},
    Key{"trial_calls",
        [](Options& o, std::string_view k, std::string_view t) {
          o.trial_calls = parse_number(k, t, 0, 1000, "a number of calls from 0 to 1000");
        },
        [](const Options& o) { return number_text(o.trial_calls); }},
    Key{"op",
        [](Options& o, std::string_view k, std::string_view t) {
          const auto op = std::ranges::find(kOps, t);
          if (op == kOps.end()) refuse(k, t, "sum, average, min, max or product");
          o.op = static_cast<ReduceOp>(op - kOps.begin());
        },
        [](const Options& o) { return std::string(kOps[static_cast<std::size_t>(o.op)]); }},
    Key{"decay",
        [](Options& o, std::string_view k, std::string_view t) {
          o.decay = parse_number(k, t, 0.0F, 1.0F, "a number from 0 to 1");
        },
        [](const Options& o) { return number_text(o.decay); }},
    Key{"min_bytes",
        [](Options& o, std::string_view k, std::string_view t) {
          o.min_bytes = parse_number<std::uint64_t>(k, t, 0, UINT64_MAX, "a whole number of bytes");
        },
        [](const Options& o) { return number_text(o.min_bytes); }},
    Key{"exempt_1d",
        [](Options& o, std::string_view k, std::string_view t) { o.exempt_1d = parse_bool(k, t); },
        [](const Options& o) { return std::string(o.exempt_1d ? "1" : "0"); }},
    Key{"exempt",
        [](Options& o, std::string_view, std::string_view t) {
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
    Key{"max_part",
        [](Options& o, std::string_view k, std::string_view t) {
          o.max_part = parse_number<std::uint64_t>(
              k, t, 0, Options::kMaxPart,
              "a number of elements from 1 to 2^32 - 64, 0 for the default");
        },
        [](const Options& o) { return number_text(o.max_part); }},
    Key{"seed",
        [](Options& o, std::string_view k, std::string_view t) {
          o.seed = parse_number<std::uint64_t>(k, t, 0, UINT64_MAX, "a whole number");
        },
        [](const Options& o) { return number_text(o.seed); }},
    Key{"deadline",
        [](Options& o, std::string_view k, std::string_view t) {
          o.deadline = parse_number(k, t, 0.0, 1e9, "seconds, 0 for the default");
        },
        [](const Options& o) { return number_text(o.deadline); }},
    Key{"threads",
        [](Options& o, std::string_view k, std::string_view t) {
          o.threads = parse_number(k, t, 0, 4096, "a number of threads, 0 for the default");
        },
        [](const Options& o) { return number_text(o.threads); }},
    Key{"residual_memory",
        [](Options& o, std::string_view k, std::string_view t) {
          const auto memory = std::ranges::find(kResidualMemories, t);
          if (memory == kResidualMemories.end()) refuse(k, t, "device or pinned_host");
          o.residual_memory = static_cast<ResidualMemory>(memory - kResidualMemories.begin());
        },
        [](const Options& o) {
          return std::string(kResidualMemories[static_cast<std::size_t>(o.residual_memory)]);
        }},
    Key{"enable",
        [](Options& o, std::string_view k, std::string_view t) { o.enable = parse_bool(k, t); },
        [](const Options& o) { return std::string(o.enable ? "1" : "0"); }},
    Key{"stats",
        [](Options& o, std::string_view k, std::string_view t) {
          o.stats = parse_number(k, t, 0, 2, "0, 1 (a table) or 2 (measure, too)");
        },
        [](const Options& o) { return number_text(o.stats); }},
    Key{"debug",
        [](Options& o, std::string_view k, std::string_view t) {
          o.debug = parse_number(k, t, 0, 3, "a level from 0 to 3");
        },
        [](const Options& o) { return number_text(o.debug); }},
};

constexpr std::string_view kPrefix = "WINNOW_";

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
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
    key->read(options, name, word.substr(equals + 1));
    at = end;
  }
  return options;
}

Options Options::parse(std::string_view text) {
  return parse(text, Options());
}

Options Options::from_environment(const Options& base) {
  Options options = base;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const auto equals = variable.find('=');
    if (!variable.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    const auto name = variable.substr(0, equals);
    std::string_view nearest;
    const Key* key = find_key(lower(name.substr(kPrefix.size())), nearest);
    WINNOW_EXPECTS(key != nullptr, "unknown environment variable '" + std::string(name) +
                                       "'; did you mean '" + std::string(kPrefix) + upper(nearest) +
                                       "'?");
    key->read(options, name, variable.substr(equals + 1));
  }
  return options;
}

Options Options::from_environment() {
  return from_environment(Options());
}

std::string Options::to_string() const {
  std::string text;
  for (const Key& key : kKeys) {
    if (!text.empty()) text += ' ';
    text += std::string(key.name) + '=' + key.write(*this);
  }
  return text;
}

}  // namespace winnow
