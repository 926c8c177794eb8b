// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>
#include <winnow/reduce_op.hpp>

#pragma GCC visibility push(default)

namespace winnow {

/// Where residuals of buckets in device memory lie: 4 bytes for each element that travels
/// compressed or beside such.
enum class ResidualMemory : std::uint8_t {
  device,
  pinned_host,  ///< page-locked memory of the host, which kernels read and write over the bus: it
                ///< passes 8 bytes an element in each call, and more where something is put back
                ///< or a selection's bound was not good
};

/// How an AllReducer works. Must be equal on all ranks, but for `threads`, `residual_memory`,
/// `stats` and `debug`; compared by digest when an AllReducer is made. Every field can be written
/// as text and as an environment variable: `compressor` is "compressor=topk:0.01" and
/// WINNOW_COMPRESSOR=topk:0.01.
struct Options {
  /// Positions inside a message are 32-bit.
  static constexpr std::uint64_t kMaxPart = (std::uint64_t{1} << 32) - 64;
  static constexpr std::uint64_t kAutomatic = 0;

  /// SELECTION[:ARGUMENT][,VALUE[:block=N][:stochastic]][,INDEX]: "none", "topk:DENSITY" or
  /// "threshold[:T]" (magnitudes above T, by default all that are not zero), then float32, bf16,
  /// fp16, int8, int4 or sign, then raw32, eliasfano or bitmap (by default the shortest). A value
  /// coding alone sends every element.
  std::string compressor = "topk:0.01";
  /// "dense", "gather", "doubling", "balanced", or, over the sums of nodes, "two_level:gather",
  /// "two_level:doubling", "two_level:balanced" or "two_level" for the fastest of these. "auto"
  /// takes what is fastest on `links`, and dense unless another is clearly ahead; "least_bytes"
  /// sends the fewest bytes. "shared" and "two_level:shared" are taken by name alone: what they
  /// send is another selection.
  std::string schedule = "auto";
  /// How fast links and passes over memory are, for "auto" and "two_level": words joined by '+',
  /// such as "inter=50us,1Gbit/s+intra=1us,10GB/s+pass=10GB/s", and "ring=4MB" where dense buckets
  /// from that size on go by Winnow's ring instead of the transport's own allreduce. Empty:
  /// measured, once, when an AllReducer is made, whose options() then say what was measured.
  std::string links = {};
  /// Where "auto" predicts times that are close, it tries both out: so many calls of a bucket by
  /// the compressed schedule and so many dense are timed, three before each are not, and all ranks
  /// stay with what was the faster, which Stats::reason tells. Until then calls may allocate, and
  /// be as slow as the slower way. 0: predictions alone decide, so `links` fixes all plans.
  int trial_calls = 5;
  ReduceOp op = ReduceOp::average;  ///< "sum", "average", "min", "max", "product"; of calls
                                    ///< that do not name their own
  float decay = 1;                  ///< error feedback: acc = gradient + decay * residual, 0 to 1
  std::uint64_t min_bytes = 65536;  ///< buckets of fewer bytes travel dense
  bool exempt_1d = true;            ///< parameters known to have one dimension travel dense
  std::vector<std::string> exempt;  ///< shell patterns of parameter names that travel dense
  /// Elements; a longer bucket travels as several parts, some of which are under way at once; k
  /// then counts for each part of a parameter. kAutomatic (0): whole within one node, between
  /// nodes parts of a million or more, so that messages reach 16 KiB.
  std::uint64_t max_part = kAutomatic;
  std::uint64_t seed = 0;  ///< of stochastic rounding
  double deadline = 0;     ///< seconds that one call may wait for peers; 0: 600, and a native dense
                           ///< collective may wait for ever
  int threads = 0;         ///< per rank; 0: cores / ranks on the node, at least 1
  /// "device" or "pinned_host": the same bits either way. Residuals of buckets in host memory lie
  /// in the host's memory whatever this says.
  ResidualMemory residual_memory = ResidualMemory::device;
  bool enable = true;  ///< false (WINNOW_ENABLE=0): every call is the dense allreduce
  int stats = 0;  ///< 1: rank 0 prints a table of what each bucket's calls did to stderr when the
                  ///< AllReducer is destroyed, and times of stages on a device are its own; 2: with
                  ///< what Stats measures by further passes over memory, on every rank that says so
  int debug = 0;  ///< lines on stderr. 1: of rank 0, one for each bucket's plan, and one if no
                  ///< call is possible any more; 2: also one a call; 3: of every rank

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
