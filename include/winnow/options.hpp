// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace winnow {

/// What becomes of the gradients of all ranks.
enum class ReduceOp { sum, average };

/// How an AllReducer works. Must be equal on all ranks, but for `threads`; compared by digest when
/// an AllReducer is made. Every field can be written as text and as an environment variable:
/// `compressor` is "compressor=topk:0.01" and WINNOW_COMPRESSOR=topk:0.01.
struct Options {
  /// Positions inside a message are 32-bit.
  static constexpr std::uint64_t kMaxPart = (std::uint64_t{1} << 32) - 64;

  std::string compressor = "topk:0.01";  ///< "none", "topk:DENSITY"
  std::string schedule = "auto";         ///< "auto", "dense", "gather"
  ReduceOp op = ReduceOp::average;       ///< "sum", "average"
  float decay = 1;                    ///< error feedback: acc = gradient + decay * residual, 0 to 1
  std::uint64_t min_bytes = 65536;    ///< buckets of fewer bytes travel dense
  bool exempt_1d = true;              ///< parameters known to have one dimension travel dense
  std::vector<std::string> exempt;    ///< shell patterns of parameter names that travel dense
  std::uint64_t max_part = kMaxPart;  ///< elements; a longer bucket travels as several messages
  double deadline = 0;  ///< seconds that one call may wait for peers; 0: 600, and a native dense
                        ///< collective may wait for ever
  int threads = 0;      ///< per rank; 0: cores / ranks on the node, at least 1
  bool enable = true;   ///< false (WINNOW_ENABLE=0): every call is the dense allreduce

  /// Reads "key=value" words separated by blanks or ';', e.g. "compressor=topk:0.01 op=sum". Keys
  /// not named keep the value they have in `base`. Throws UsageError; an unknown key names the
  /// nearest known one.
  static Options parse(std::string_view text, const Options& base);
  static Options parse(std::string_view text);
  /// `base` overridden by the WINNOW_ variables of the environment. Throws UsageError for a
  /// WINNOW_ variable that is not an option.
  static Options from_environment(const Options& base);
  static Options from_environment();

  /// All keys in the form that parse reads.
  std::string to_string() const;
};

}  // namespace winnow

#pragma GCC visibility pop
