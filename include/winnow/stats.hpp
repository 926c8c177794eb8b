// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace winnow {

/// What one call, or several, did on this rank. Of several, numbers are sums and texts the last
/// call's, where nothing else is said. A call that throws is in none.
struct Stats {
  std::uint64_t calls = 0;
  std::string schedule;          ///< of its parts, joined by '+', e.g. "gather+dense"
  std::string reason;            ///< why it was chosen, e.g. why a call went dense
  std::string coding;            ///< of messages: index and value coding, e.g. "eliasfano,float32"
  std::uint64_t count = 0;       ///< elements reduced
  std::uint64_t kept = 0;        ///< elements this rank sent, dense ones included
  std::uint64_t wire_bytes = 0;  ///< that this rank sent; of a dense call, what the busiest
                                 ///< rank of a ring sends
  std::uint64_t network_bytes = 0;     ///< those of them that went to ranks of other nodes
  std::uint64_t dense_wire_bytes = 0;  ///< what a dense ring would have sent

  // Seconds of wall-clock time; no moment is counted twice, and measuring (below) not at all. Of
  // buckets in device memory they are the host's, which enqueues; or, where Options::stats is not
  // 0, those of the stream by the device's clock, all that is in no stage as wait_seconds. These
  // count when AllReducer::synchronize or a later call hears that the call is done. Calls that are
  // captured into a CUDA graph have none.
  double select_seconds = 0;  ///< feedback and selection; with the value coding where a compressor
                              ///< keeps everything, for that is one pass; before these, inputs
                              ///< copied and 16 bits widened; packing of dense parts
  double encode_seconds = 0;  ///< value coding, what it misses put back, index coding, checksum
  double exchange_seconds = 0;  ///< setting messages going; dense collectives whole, in which
                                ///< nothing tells the transfer from waiting for slower ranks
  double wait_seconds = 0;      ///< stopped until messages have come and gone: the transfer that no
                                ///< other work hides, and slower ranks
  double add_seconds = 0;       ///< decoding, adding, and writing into the elements

  std::uint64_t poisoned = 0;     ///< calls whose bucket became NaN by the poison bit
  std::uint64_t allocations = 0;  ///< of scratch and residuals

  // What costs a pass over memory of its own: only where Options::stats is 2.
  std::uint64_t measured = 0;  ///< elements of results that the next two are of; else 0
  std::uint64_t nonzero = 0;   ///< how many of them are not zero; NaN is not
  std::uint64_t digest = 0;    ///< of the result's bits, any NaN as one: equal on all ranks, of
                               ///< several calls a digest of theirs in order; 0 where not measured
  /// L2, of all residuals of the bucket's parameters after the call, of several calls the last one;
  /// NaN where not measured.
  double residual_norm = std::numeric_limits<double>::quiet_NaN();

  /// Share of the results' elements that are not zero; NaN where not measured.
  double density_after() const {
    return measured == 0 ? std::numeric_limits<double>::quiet_NaN()
                         : static_cast<double>(nonzero) / static_cast<double>(measured);
  }
};

/// What the calls of one bucket did.
struct BucketStats {
  std::uint64_t id = 0;          ///< hash of its parameters' ids and counts
  std::string name;              ///< of the first of them that has one
  std::uint64_t count = 0;       ///< elements
  std::uint64_t compressed = 0;  ///< how many of them travel compressed; 0: the bucket goes dense
  Stats totals;                  ///< of its calls; schedule and reason are the plan's
};

}  // namespace winnow
