// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#pragma GCC visibility push(default)

namespace winnow {

/// What becomes of the elements of all ranks.
enum class ReduceOp : std::uint8_t {
  sum,      ///< of integers modulo 2^bits
  average,  ///< the sum, then one multiplication by 1 / ranks; of integers one division, towards
            ///< zero, as ncclAvg does
  minimum,  ///< of floats as IEEE 754-2019 has it: NaN if any is NaN, and -0 is below 0
  maximum,  ///< the same
  product,  ///< of integers modulo 2^bits
};

}  // namespace winnow

#pragma GCC visibility pop
