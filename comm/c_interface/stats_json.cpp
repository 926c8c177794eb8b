// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/c_interface/stats_json.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <string_view>
#include <variant>

#include "comm/stats/fields.hpp"

namespace winnow::comm {
namespace {

void append(std::string& json, std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  json += '"';
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      json.append({'\\', c});
    } else if (code < ' ') {
      json.append("\\u00").append({kDigits[code >> 4], kDigits[code & 15]});
    } else {
      json += c;
    }
  }
  json += '"';
}

template <class Number>
  requires std::integral<Number> || std::floating_point<Number>
void append(std::string& json, Number number) {
  if constexpr (std::floating_point<Number>) {
    if (!std::isfinite(number)) {
      json += "null";
      return;
    }
  }
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  json.append(digits.data(), end);
}

void append(std::string& json, bool value) {
  json += value ? "true" : "false";
}

/// An object under construction.
class Object {
 public:
  explicit Object(std::string& json) : json_(json) { json_ += '{'; }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  ~Object() { json_ += '}'; }

  /// Begins a member; its value is to follow.
  void begin(std::string_view name) {
    if (json_.back() != '{') json_ += ',';
    append(json_, name);
    json_ += ':';
  }
  template <class Value>
  void add(std::string_view name, const Value& value) {
    begin(name);
    append(json_, value);
  }

 private:
  std::string& json_;
};

void append(std::string& json, const Stats& stats) {
  Object object(json);
  for (const StatsField& field : kStatsFields) {
    object.begin(field.name);
    std::visit([&](auto value) { append(json, stats.*value); }, field.value);
  }
  object.add("density_after", stats.density_after());
}

}  // namespace

std::string to_json(const Stats& stats) {
  std::string json;
  append(json, stats);
  return json;
}

std::string to_json(std::span<const BucketStats> buckets) {
  std::string json = "[";
  for (const BucketStats& bucket : buckets) {
    if (json.back() != '[') json += ',';
    Object object(json);
    object.add("id", bucket.id);
    object.add("name", std::string_view(bucket.name));
    object.add("count", bucket.count);
    object.add("compressed", bucket.compressed);
    object.begin("totals");
    append(json, bucket.totals);
    object.add("trying", bucket.trying);
  }
  return json + "]";
}

std::string to_json(std::span<const Stats> all) {
  std::string json = "[";
  for (const Stats& stats : all) {
    if (json.back() != '[') json += ',';
    append(json, stats);
  }
  return json + "]";
}

}  // namespace winnow::comm
