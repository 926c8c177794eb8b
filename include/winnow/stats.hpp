// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace winnow {

/// What one call, or all calls so far, did. Byte counts are those of the busiest rank.
struct Stats {
  std::uint64_t calls = 0;
  std::string schedule;                ///< of the last call
  std::string reason;                  ///< why it was chosen, e.g. why a call went dense
  std::string coding;                  ///< index and value coding, e.g. "eliasfano,float32"
  std::uint64_t count = 0;             ///< elements reduced
  std::uint64_t kept = 0;              ///< elements this rank sent, dense ones included
  std::uint64_t wire_bytes = 0;        ///< sent by the busiest rank; of a native dense collective,
                                       ///< what a ring sends
  std::uint64_t dense_wire_bytes = 0;  ///< what a dense ring would have sent
  double select_seconds = 0;           ///< feedback, selection and coding
  double exchange_seconds = 0;         ///< between ranks, waiting included
  double add_seconds = 0;              ///< decoding and adding
  std::uint64_t poisoned = 0;          ///< calls whose bucket became NaN by the poison bit
  std::uint64_t allocations = 0;       ///< of scratch and residuals
};

}  // namespace winnow
