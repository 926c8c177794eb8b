// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/option_words.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <winnow/error.hpp>

#include "comm/plan/presets.hpp"
#include "comm/schedule/schedule.hpp"
#include "compress/compressor.hpp"
#include "topology/nearest.hpp"
#include "topology/words.hpp"

namespace winnow::comm {
namespace {

constexpr std::string_view kLinks = "links", kExempt = "exempt", kMinBytes = "min_bytes",
                           kCompressor = "compressor";
constexpr std::array<std::string_view, 4> kLinkNames = {"inter", "intra", "pass", "ring"};

bool is_blank(char c) {
  return kBlanks.find(c) != std::string_view::npos;
}

/// The rest of a text that is cut into options.
class Rest {
 public:
  Rest(std::string_view text, std::span<const std::string_view> names)
      : text_(text), names_(names) {}

  bool at_end() {
    skip([](char c) { return is_blank(c) || c == ';'; });
    return at_ == text_.size();
  }
  OptionWord next() {
    const std::string_view name = take([](char c) { return !is_blank(c) && c != ';' && c != '='; });
    skip(is_blank);
    if (peek() != '=') fail_bare(name);
    ++at_;
    OptionWord word{.name = lower_case(name), .value = {}};
    skip(is_blank);
    while (!ended() && !opens(names_)) {
      word.value += take([](char c) { return !is_blank(c) && c != ';'; });
      const std::size_t end = at_;
      skip(is_blank);
      const bool more = !ended() && !word.value.empty();
      if (more && word.name == kLinks && opens(kLinkNames)) {
        if (!word.value.ends_with('+')) word.value += '+';
      } else if (!more || !(joins(word.name, word.value.back()) || joins(word.name, peek()) ||
                            (peek() == '%' && word.name != kExempt) ||
                            (word.name == kMinBytes && is_before_unit(word.value)))) {
        at_ = end;
        break;
      }
    }
    last_ = word;
    return word;
  }

 private:
  template <class Is>
  void skip(const Is& is) {
    while (at_ < text_.size() && is(text_[at_])) ++at_;
  }
  template <class Is>
  std::string_view take(const Is& is) {
    const std::size_t begin = at_;
    skip(is);
    return text_.substr(begin, at_ - begin);
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool ended() const { return at_ == text_.size() || peek() == ';'; }

  /// Whether blanks beside the character belong to the value.
  static bool joins(std::string_view name, char c) {
    return (name == kExempt ? std::string_view(",") : std::string_view(",:+/=")).find(c) !=
           std::string_view::npos;
  }
  /// Whether one of these names and a '=' come next.
  bool opens(std::span<const std::string_view> names) const {
    const auto ahead = text_.substr(at_);
    const auto end = std::min(ahead.find_first_of("=; \t\n\r\v\f"), ahead.size());
    const auto equals = ahead.find_first_not_of(kBlanks, end);
    return equals != std::string_view::npos && ahead[equals] == '=' &&
           std::ranges::find(names, lower_case(ahead.substr(0, end))) != names.end();
  }

  /// Whether a number is all that there is, and a unit of bytes comes next: "64 KiB".
  bool is_before_unit(std::string_view number) const {
    const auto ahead = text_.substr(at_);
    const std::string_view unit = ahead.substr(0, ahead.find_first_of("=; \t\n\r\v\f"));
    return number.find_first_not_of("+0123456789.") == std::string_view::npos && !unit.empty() &&
           bytes_of_unit(unit).has_value();
  }

  /// A word without '=': says which option takes it.
  [[noreturn]] void fail_bare(std::string_view word) const {
    std::string text = "options are written key=value, not '" + std::string(word) + "'";
    const std::string meant = option_of(word);
    if (!meant.empty()) text += "; did you mean '" + meant + "'?";
    fail_usage(text);
  }
  std::string option_of(std::string_view word) const {
    const std::string text = lower_case(word);
    if (last_ && last_->name == kCompressor) {
      for (const char* mark : {",", ":"}) {  // instead of the blank before the word
        try {
          const std::string whole = last_->value + mark + text;
          return std::string(kCompressor) + "=" + compress::make_compressor(whole)->name();
        } catch (const UsageError&) {
          // Another option's, perhaps.
        }
      }
    }
    const auto colon = std::min(text.find(':'), text.size());
    if (std::ranges::find(names_, std::string_view(text).substr(0, colon)) != names_.end()) {
      const std::string_view value = word.substr(std::min(colon + 1, word.size()));
      return text.substr(0, colon) + "=" + std::string(value.empty() ? "VALUE" : value);
    }
    if (!preset_words(text).empty()) return "preset=" + text;
    try {
      return "compressor=" + compress::make_compressor(text)->name();
    } catch (const UsageError&) {
      // Another option's, perhaps.
    }
    try {
      return "schedule=" + schedule_word(text);
    } catch (const UsageError&) {
      return {};
    }
  }

  std::string_view text_;
  std::span<const std::string_view> names_;
  std::size_t at_ = 0;
  std::optional<OptionWord> last_;  // before the one that is read
};

/// A name elsewhere, how its meaning is written here, and what is written for its value, if that is
/// a part of it.
struct Elsewhere {
  std::string_view name, here, place = {};
};
constexpr Elsewhere kUnderOtherNames[] = {
    {"density", "compressor=topk:DENSITY", "DENSITY"},
    {"k", "compressor=topk:DENSITY", "DENSITY"},
    {"topk", "compressor=topk:DENSITY", "DENSITY"},
    {"ratio", "compressor=topk:DENSITY", "DENSITY"},
    {"compress_ratio", "compressor=topk:DENSITY", "DENSITY"},
    {"compression_ratio", "compressor=topk:DENSITY", "DENSITY"},
    {"sparsity", "compressor=topk:DENSITY, where the density is 1 - sparsity"},
    {"compression", "compressor=COMPRESSOR", "COMPRESSOR"},
    {"method", "compressor=COMPRESSOR", "COMPRESSOR"},
    {"quantization", "compressor=int8, or compressor=topk:0.01,int8"},
    {"bits", "compressor=int8, or compressor=topk:0.01,int8"},
    {"warmup", "compressor=topk:0.01:warmup=CALLS", "CALLS"},
    {"warmup_steps", "compressor=topk:0.01:warmup=CALLS", "CALLS"},
    {"stochastic", "compressor=topk:0.01,int8:stochastic"},
    {"block", "compressor=topk:0.01,int8:block=BLOCK", "BLOCK"},
    {"sums", "compressor=topk:0.01:sums=SHARE", "SHARE"},
    {"algorithm", "schedule=SCHEDULE", "SCHEDULE"},
    {"algo", "schedule=SCHEDULE", "SCHEDULE"},
    {"collective", "schedule=SCHEDULE", "SCHEDULE"},
    {"operation", "op=OPERATION", "OPERATION"},
    {"reduce_op", "op=OPERATION", "OPERATION"},
    {"reduction", "op=OPERATION", "OPERATION"},
    {"average", "op=average, or op=sum"},
    {"timeout", "deadline=SECONDS", "SECONDS"},
    {"momentum", "precondition=momentum:MOMENTUM", "MOMENTUM"},
    {"error_feedback", "decay=1, or decay=0 for none"},
    {"feedback", "decay=1, or decay=0 for none"},
    {"memory", "decay=1, or decay=0 for none; residual_memory says where residuals lie"},
    {"min_size", "min_bytes=BYTES", "BYTES"},
    {"bucket_bytes", "min_bytes=BYTES", "BYTES"},
    {"threshold", "compressor=threshold:THRESHOLD, or min_bytes=BYTES", "THRESHOLD"},
    {"exclude", "exempt=PATTERNS", "PATTERNS"},
    {"skip", "exempt=PATTERNS", "PATTERNS"},
    {"num_threads", "threads=THREADS", "THREADS"},
    {"nthreads", "threads=THREADS", "THREADS"},
    {"crc", "checksum=all"},
    {"verbose", "debug=1"},
    {"log_level", "debug=1"},
    {"disable", "enable=0"},
};

}  // namespace

std::vector<OptionWord> cut_option_words(std::string_view text,
                                         std::span<const std::string_view> names) {
  std::vector<OptionWord> words;
  for (Rest rest(text, names); !rest.at_end();) words.push_back(rest.next());
  return words;
}

std::string_view nearest_elsewhere(std::string_view name) {
  std::array<std::string_view, std::size(kUnderOtherNames)> names;
  std::ranges::transform(kUnderOtherNames, names.begin(), &Elsewhere::name);
  return nearest_word(name, names);
}

std::string option_elsewhere(std::string_view name, std::string_view value) {
  const auto known = std::ranges::find(kUnderOtherNames, name, &Elsewhere::name);
  if (known == std::end(kUnderOtherNames)) {
    try {
      const std::string compressor = std::string(name).append(":").append(value);
      return "compressor=" + compress::make_compressor(compressor)->name();
    } catch (const UsageError&) {
      return {};
    }
  }
  std::string text(known->here);
  if (known->place.empty() || value.empty()) return text;
  double share = 0;
  if (known->place == "DENSITY" && !(read_share(value, share) && share > 0 && share <= 1)) {
    return text + ", the share of elements that travel, above 0 and at most 1";
  }
  return text.replace(text.find(known->place), known->place.size(), value);
}

}  // namespace winnow::comm
