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

/// Where residuals of buckets in device memory lie. They take 4 bytes for each element that travels
/// compressed, or in a bucket with such elements.
enum class ResidualMemory : std::uint8_t {
  device,
  pinned_host,  ///< page-locked host memory, which kernels access over the bus: 8 bytes an element
                ///< per call, and more if something is put back or a selection's bound was poor
};

/// How AllReducer::all_reduce_rows sends rows.
enum class RowCoding : std::uint8_t {
  exact,  ///< as they are given
  bf16,   ///< with error feedback: a rank, and the owner of a sum, keep what rounding misses, in a
  int8,   ///< residual of 4 bytes for each element of the table, until they have the row again
};

/// The bytes that a checksum covers.
enum class Checksum : std::uint8_t {
  headers,  ///< messages with a header: all that is compressed, but for float32 values at a support
            ///< that went before ("shared") and gradients on their way within a node (two levels)
  all,      ///< every byte, also of dense sums, which end with a comparison of the results; and
            ///< each call begins with one of its ids, counts and operation, a small message to
            ///< every rank. Needs a transport of host memory; dense sums use Winnow's ring
};

/// How an AllReducer works. All fields but `threads`, `residual_memory`, `stats` and `debug` must
/// be equal on all ranks; the constructor compares them by digest. Every field can be written as
/// text ("compressor=topk:0.01") and as an environment variable (WINNOW_COMPRESSOR=topk:0.01).
struct Options {
  /// Positions inside a message are 32-bit.
  static constexpr std::uint64_t kMaxPart = (std::uint64_t{1} << 32) - 64;
  static constexpr std::uint64_t kAutomatic = 0;

  /// SELECTION[:ARGUMENT][,VALUE[:block=N][:stochastic]][,INDEX]. SELECTION: "none",
  /// "topk:DENSITY[:sums=SHARE][:warmup=CALLS]", "blocktopk:K/N" (K of each N elements),
  /// "threshold[:T]" (magnitudes above T; without T, all that are not zero) or
  /// "randomk:DENSITY[:warmup=CALLS]" (positions that all ranks draw in each call). SHARE is what
  /// owners keep of their sums in "balanced", DENSITY if not given; it must not be given with
  /// "shared". In a warm-up a parameter keeps 1/4, 1/16, ... of its elements, each for equally many
  /// of its first CALLS calls, until that is DENSITY; its buckets count as new at each change, and
  /// owners keep no smaller share of their sums than ranks of their gradients. VALUE: float32,
  /// bf16, fp16, int8, fp8, int4, int2, sign or mean (of elements of one sign, which "topk" and
  /// "blocktopk" then select, in turn; for schedules that code no sums). INDEX: raw32, eliasfano or
  /// bitmap (default: the shortest). A VALUE alone sends every element.
  std::string compressor = "topk:0.01";
  /// "dense", "gather", "doubling", "balanced"; or, over the sums of nodes, "two_level:gather",
  /// "two_level:doubling", "two_level:balanced", or "two_level" for the fastest of these. "auto"
  /// takes the fastest on `links`, and dense unless another is clearly faster. "least_bytes" sends
  /// the fewest bytes. "shared" and "two_level:shared" select other elements, so only their names
  /// choose them. One rank alone is dense by any of them: its sums are exact.
  std::string schedule = "auto";
  /// Speeds of links and of passes over memory, for "auto" and "two_level": words joined by '+',
  /// such as "inter=50us,1Gbit/s+intra=1us,10GB/s+pass=10GB/s". "ring=4MB" sends dense buckets of
  /// that size or more over Winnow's ring instead of the transport's own allreduce. Empty: the
  /// AllReducer measures once, when it is made, if these schedules need it; its options() then hold
  /// the result. "measured": also for others, so that Stats::dense_seconds is known.
  std::string links = {};
  static constexpr std::string_view kMeasured = "measured";
  /// "auto" tries the ways that may be the fastest: the compressed schedule, dense unless calls by
  /// that schedule confirm that it is far behind, and dense by Winnow's ring. It times this many
  /// calls of a bucket by each, after three untimed ones, and up to three times as many by ways
  /// that are nearly as fast as the best. All ranks then keep the fastest, and Stats::reason says
  /// so. Until then calls may allocate and be as slow as the slowest way. 0: predictions alone
  /// decide, so `links` fixes all plans.
  int trial_calls = 5;
  ReduceOp op = ReduceOp::average;  ///< "sum", "average", "min", "max", "product"; for calls that
                                    ///< name none
  float decay = 1;                  ///< error feedback: acc = gradient + decay * residual, 0 to 1
  /// How each rank changes its own gradient before error feedback, also where it travels dense:
  /// "none";
  /// "second_moment:B2[:EPSILON]": gradient / (sqrt(v / (1 - B2^t)) + EPSILON), where v = B2 v +
  /// (1 - B2) gradient^2, t counts the parameter's calls, and EPSILON is 1e-8 unless given. The
  /// optimizer behind it then keeps no second moments, which compressed sums would spoil: with
  /// momentum B1 on the results this is Adam, made by each rank of its own gradients;
  /// "momentum:M[:masked]": v = M v + gradient, for an optimizer without momentum. Masked, v begins
  /// anew where the residual is 0, as it is where all was sent, if it is the rank's own: not in two
  /// levels. (Momentum correction: Lin et al., Deep Gradient Compression, 2018.)
  /// Either takes 4 bytes of memory for each element, and moves 8 in the pass that selects, or
  /// else 16 (masked: 20) in one of its own. A gradient that is not finite, or whose moment
  /// would not be, changes no moment.
  std::string precondition = "none";
  std::uint64_t min_bytes = 65536;  ///< smaller buckets travel dense; as text also "64K"
  bool exempt_1d = true;            ///< parameters known to have one dimension travel dense
  /// Shell patterns of parameter names that travel dense; without blanks, ';', ',' and '='.
  std::vector<std::string> exempt;
  RowCoding rows = RowCoding::exact;  ///< "exact", "bf16" or "int8"
  /// In elements. A longer bucket travels in several parts, some of them under way at once; k then
  /// applies to each part of a parameter. kAutomatic (0): no parts within one node; between nodes,
  /// parts of at least a million elements, so that messages reach 16 KiB.
  std::uint64_t max_part = kAutomatic;
  std::uint64_t seed = 0;  ///< of stochastic rounding and of the positions that randomk draws
  double deadline = 0;     ///< seconds that a call may wait for peers; 0: 600 s, and a native dense
                           ///< collective may wait for ever
  int threads = 0;         ///< per rank. 0: its share of the cores that it may run on, or of its
                           ///< control group's quota if less; OMP_NUM_THREADS at most, 1 at least
  Checksum checksum = Checksum::headers;  ///< "headers" or "all": 8 bytes more for each message,
                                          ///< and a pass over it at both ends
  /// "device" or "pinned_host"; the bits are the same. Residuals of buckets in host memory always
  /// lie in host memory.
  ResidualMemory residual_memory = ResidualMemory::device;
  bool enable = true;  ///< false (WINNOW_ENABLE=0): every call is the dense allreduce
  int stats = 0;  ///< 1: rank 0 prints a table of each bucket's calls to stderr when the AllReducer
                  ///< is destroyed, and stage times on a device use its own clock; 2: each rank
                  ///< that sets it also measures what costs Stats further passes over memory
  int debug = 0;  ///< lines on stderr. 1: from rank 0, one per bucket's plan, and one if calls are
                  ///< no longer possible; 2: also one per call; 3: from every rank

  /// Reads "key=value" words separated by blanks or ';', e.g. "compressor=topk:0.01 op=sum"; in
  /// any case, and with blanks beside '=', ',', ':', '+' and '/'.
  /// Missing keys keep their value in `base`; "preset=NAME" stands for several words (dgc, oktopk,
  /// onebit, qgz, redsync, scalecom, sparcml, sparseloco, swcaffe, zen: docs/options.md), which
  /// later ones override. Throws UsageError; for an unknown key it names the nearest known one.
  static Options parse(std::string_view text, const Options& base);
  static Options parse(std::string_view text);
  /// `base` overridden by the WINNOW_ variables of the environment, WINNOW_PRESET first. Throws
  /// UsageError for a WINNOW_ variable whose name is an option's but for a letter or two, or what
  /// others call one; lets others pass.
  static Options from_environment(const Options& base);
  static Options from_environment();

  /// All keys in the form that parse reads.
  std::string to_string() const;
};

}  // namespace winnow

#pragma GCC visibility pop
