// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/link_model.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <vector>
#include <winnow/error.hpp>

#include "topology/words.hpp"

namespace winnow {

namespace {

/// A unit is worth numerator / denominator base units; one of the two is 1, so that "50us" is the
/// number nearest to 50e-6.
struct Unit {
  std::string_view name;
  double numerator, denominator;
};
// From small to large; the base unit is the one worth 1.
constexpr std::array kTimes = {Unit{"ns", 1, 1e9}, Unit{"us", 1, 1e6}, Unit{"ms", 1, 1e3},
                               Unit{"s", 1, 1}};
constexpr std::array kRates = {
    Unit{"bit/s", 1, 8},      Unit{"B/s", 1, 1},    Unit{"kbit/s", 125, 1},   Unit{"kB/s", 1e3, 1},
    Unit{"Mbit/s", 125e3, 1}, Unit{"MB/s", 1e6, 1}, Unit{"Gbit/s", 125e6, 1}, Unit{"GB/s", 1e9, 1},
    Unit{"Tbit/s", 125e9, 1}, Unit{"TB/s", 1e12, 1}};
constexpr std::array kSizes = {Unit{"B", 1, 1}, Unit{"kB", 1e3, 1}, Unit{"MB", 1e6, 1},
                               Unit{"GB", 1e9, 1}, Unit{"TB", 1e12, 1}};

constexpr const char* kForms =
    "write \"inter=50us,100Mbit/s+intra=1us,10GB/s+pass=10GB/s\", where a bandwidth may be "
    "followed "
    "by \",per-node\" (ranks of a node share it) or \",per-rank\"; times are in ns, us, ms or s, "
    "bandwidths in bit/s or B/s with k, M, G or T before; \"ring=4MB\" says from which size on "
    "dense sums go by Winnow's ring";

[[noreturn]] void fail_text(std::string_view text, const std::string& why) {
  fail_usage("link model \"" + std::string(text) + "\": " + why + "; " + kForms);
}

std::string quoted(std::string_view word) {
  std::string text(1, '"');
  text += word;
  return text += '"';
}

[[noreturn]] void fail_unit(std::string_view text, std::string_view word, std::string_view unit,
                            std::string_view what) {
  fail_text(text, quoted(word) + " is not a " + std::string(what) + ": " +
                      (unit.empty() ? "it has no unit" : "it has no such unit as " + quoted(unit)));
}

/// Parses a number with a unit, in the base unit.
double parse_quantity(std::string_view text, std::string_view word, std::span<const Unit> units,
                      std::string_view what) {
  double number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0)
    fail_text(text, quoted(word) + " is not a " + std::string(what));
  const std::string_view name = word.substr(static_cast<std::size_t>(end - word.data()));
  const auto unit = std::ranges::find(units, name, &Unit::name);
  if (unit == units.end()) fail_unit(text, word, name, what);
  const double quantity = number * unit->numerator / unit->denominator;
  if (!std::isfinite(quantity))
    fail_text(text, quoted(word) + " is too large a " + std::string(what));
  return quantity;
}

double parse_bandwidth(std::string_view text, std::string_view word) {
  const double bandwidth = parse_quantity(text, word, kRates, "bandwidth");
  if (!(bandwidth > 0) || !std::isfinite(1 / bandwidth))
    fail_text(text, "bandwidth " + quoted(word) + " must be above 0");
  return bandwidth;
}

std::uint64_t parse_size(std::string_view text, std::string_view word) {
  constexpr std::uint64_t kMost = 9'000'000'000'000'000;  // below it whole numbers are doubles
  const auto digits = std::min(word.find_first_not_of("+0123456789.eE"), word.size());
  const std::string_view unit = word.substr(digits);
  if (double number = 0; !read_number(word.substr(0, digits), number))
    fail_text(text, quoted(word) + " is not a size");
  if (unit.empty() || !bytes_of_unit(unit)) fail_unit(text, word, unit, "size");
  const auto bytes = read_bytes(word);
  if (!bytes || *bytes > kMost)
    fail_text(text, quoted(word) + " is not a whole number of bytes up to 9 PB");
  return *bytes;
}

Link parse_link(std::string_view text, std::string_view value, Link link) {
  const std::vector<std::string_view> fields = split(value, ",");
  if (fields.size() < 2 || fields.size() > 3)
    fail_text(text, quoted(value) + " is not a latency and a bandwidth");
  link.alpha = parse_quantity(text, fields[0], kTimes, "latency");
  link.beta = parse_bandwidth(text, fields[1]);
  if (fields.size() == 2) return link;
  if (fields[2] != "per-node" && fields[2] != "per-rank")
    fail_text(text, quoted(fields[2]) + " is neither \"per-node\" nor \"per-rank\"");
  link.port = fields[2] == "per-node" ? Link::Port::per_node : Link::Port::per_rank;
  return link;
}

std::string shortest(double number) {
  std::array<char, 32> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  return {digits.data(), end};
}

/// Writes in the largest unit that makes it at least 1 and reads back with the same bits.
std::string write_quantity(double quantity, std::span<const Unit> units) {
  std::string written;
  for (const Unit& unit : units) {
    const double number = quantity / unit.numerator * unit.denominator;
    const double back = number * unit.numerator / unit.denominator;
    const bool base = unit.numerator == 1 && unit.denominator == 1;
    if (back != quantity || (number < 1 && !written.empty()) || (number < 1 && !base)) continue;
    written = shortest(number) + std::string(unit.name);
  }
  return written;
}

std::string write_link(const Link& link) {
  return write_quantity(link.alpha, kTimes) + "," + write_quantity(link.beta, kRates) +
         (link.port == Link::Port::per_node ? ",per-node" : ",per-rank");
}

}  // namespace

LinkModel LinkModel::parse(std::string_view text) {
  LinkModel model;
  std::vector<std::string_view> seen;
  // A '+' before a key separates like a blank; one inside a number belongs to its exponent.
  std::string marked(text);
  for (std::size_t i = 0; i + 1 < marked.size(); ++i) {
    constexpr std::string_view kFirstOfKeys = "ipr";
    if (marked[i] == '+' && kFirstOfKeys.find(marked[i + 1]) != std::string_view::npos)
      marked[i] = ' ';
  }
  for (const std::string_view word : split(marked, " \t\n")) {
    if (word.empty()) continue;
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string_view key = word.substr(0, equals);
    const std::string_view value = word.substr(std::min(equals + 1, word.size()));
    if (std::ranges::find(seen, key) != seen.end())
      fail_text(text, quoted(key) + " is there twice");
    seen.push_back(key);
    if (key == "inter") {
      model.inter = parse_link(text, value, model.inter);
    } else if (key == "intra") {
      model.intra = parse_link(text, value, model.intra);
    } else if (key == "pass") {
      model.pass = parse_bandwidth(text, value);
    } else if (key == "ring") {
      model.ring = parse_size(text, value);
    } else {
      fail_text(text, quoted(key) + " is not \"inter\", \"intra\", \"pass\" or \"ring\"");
    }
  }
  return model;
}

std::string LinkModel::to_string(char mark) const {
  std::string text = "inter=" + write_link(inter) + mark + "intra=" + write_link(intra) + mark +
                     "pass=" + write_quantity(pass, kRates);
  if (ring != kNever) text += mark + ("ring=" + write_quantity(static_cast<double>(ring), kSizes));
  return text;
}

}  // namespace winnow
