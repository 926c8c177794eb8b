// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>
#include <winnow/winnow.hpp>

namespace winnow::tests {

/// The kinds of gradients.
enum class Values {
  bell,    ///< all of about the same size
  heavy,   ///< a few are far larger than the others
  tied,    ///< only four magnitudes
  sparse,  ///< mostly zeros of both signs; some of the rest at the same place on all ranks
  tiny,    ///< denormal
  zero,
};

/// One parameter of a case's bucket.
struct BitsParameter {
  std::uint64_t id, count;
  Values values;
  int dimensions = 2;
};

/// An event in one element, on one rank or all ranks, at the second of three steps.
enum class Event {
  none,
  nan,       ///< one rank has a NaN
  infinity,  ///< one rank has an infinity
  overflow,  ///< every rank has a number so large that the sum is infinite
};

/// A case with pinned bits: what all ranks of a job do, over three steps.
struct BitsCase {
  std::string name;  ///< COMPRESSOR@SCHEDULE/TOPOLOGY, and +WORD for each other change
  Options options;
  Topology topology;
  std::vector<BitsParameter> parameters;
  ElementType type = ElementType::float32;
  Event event = Event::none;
  bool out_of_place = false;  ///< the gradient is a Segment's input
};

/// For failure messages.
inline std::ostream& operator<<(std::ostream& out, const BitsCase& the_case) {
  return out << the_case.name;
}

/// All cases, in the order of the file of digests.
const std::vector<BitsCase>& bits_cases();

/// Digests of what all ranks of a case held and sent.
struct Bits {
  std::uint64_t state = 0;     ///< results and residuals of each rank after each step
  std::uint64_t messages = 0;  ///< bytes of all messages of its calls to each peer
  std::uint64_t order = 0;     ///< of these messages; may differ in device memory
};

/// Runs a case with `threads` threads per rank.
Bits bits_of(const BitsCase& the_case, int threads);

}  // namespace winnow::tests
