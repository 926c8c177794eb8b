// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <winnow/cxx20.hpp>

namespace winnow {

/// Statistics of one or several calls on this rank. For several calls, numbers are sums and texts
/// are the last call's, unless said otherwise. Calls that throw are not counted.
struct Stats {
  std::uint64_t calls = 0;
  std::string schedule;          ///< of the bucket's parts, joined by '+', e.g. "gather+dense"
  std::string reason;            ///< why this schedule was chosen, e.g. why a call went dense
  std::string coding;            ///< index and value coding of the messages of the bucket's first
                                 ///< compressed part, e.g. "eliasfano,float32"
  std::uint64_t count = 0;       ///< elements reduced
  std::uint64_t kept = 0;        ///< elements this rank sent, dense ones included
  std::uint64_t wire_bytes = 0;  ///< bytes this rank sent; for a dense call, what the busiest rank
                                 ///< of Winnow's own allreduce sends
  std::uint64_t network_bytes = 0;     ///< the share of wire_bytes that went to other nodes
  std::uint64_t dense_wire_bytes = 0;  ///< what a dense ring would have sent

  // Wall-clock seconds. No moment counts twice, and measuring (below) does not count. For buckets
  // in device memory these are the host's times, which only enqueues; if Options::stats is not 0,
  // the device's clock times the stream, and time in no stage is wait_seconds. Device times count
  // once AllReducer::synchronize or a later call learns that the call is done. Calls captured into
  // a CUDA graph have none.
  double select_seconds = 0;  ///< copying inputs, widening 16 bits, packing dense parts; feedback
                              ///< and selection; also the value coding if the compressor keeps
                              ///< everything (one pass)
  double encode_seconds = 0;  ///< value coding, putting back what it misses, index coding, checksum
  double exchange_seconds = 0;  ///< starting messages; all of a dense collective, which hides how
                                ///< long it waits for slower ranks
  double wait_seconds = 0;  ///< blocked on messages: transfers that no other work hides, and slower
                            ///< ranks
  double add_seconds = 0;   ///< decoding, adding, writing into the elements

  std::uint64_t poisoned = 0;  ///< calls whose bucket the poison bit made NaN
  std::uint64_t clipped = 0;   ///< calls with a finite sum that an element of 16 bits cannot hold:
                               ///< the largest finite element was delivered, and the rest waits
  std::uint64_t allocations = 0;  ///< of scratch and residuals

  // Measured only if Options::stats is 2: each costs a pass over memory.
  std::uint64_t measured = 0;  ///< elements of results behind the next two fields; 0 if not
                               ///< measured
  std::uint64_t nonzero = 0;   ///< how many of them are not zero; NaN counts as not zero
  std::uint64_t digest = 0;    ///< of the result's bits, every NaN the same; equal on all ranks.
                               ///< Several calls: a digest of their digests in order. 0 if not
                               ///< measured
  /// L2 norm of all residuals of the bucket's parameters after the call (of several: the last
  /// call); NaN if not measured.
  double residual_norm = std::numeric_limits<double>::quiet_NaN();

  /// Seconds that dense calls would have taken, predicted by the link model; 0 if links are
  /// neither measured nor given (Options::links).
  double dense_seconds = 0;

  /// Share of the results' elements that are not zero; NaN if not measured.
  double density_after() const {
    return measured == 0 ? std::numeric_limits<double>::quiet_NaN()
                         : static_cast<double>(nonzero) / static_cast<double>(measured);
  }
};

/// Statistics of the calls of one bucket.
struct BucketStats {
  std::uint64_t id = 0;          ///< hash of its parameters' ids and counts
  std::string name;              ///< of its first parameter that has one
  std::uint64_t count = 0;       ///< elements
  std::uint64_t compressed = 0;  ///< of them, those that travel compressed; 0: the bucket goes
                                 ///< dense
  Stats totals;                  ///< of its calls; schedule and reason are the plan's
  bool trying = false;           ///< its schedule is not settled yet (Options::trial_calls)
};

}  // namespace winnow
