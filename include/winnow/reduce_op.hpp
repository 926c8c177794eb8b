// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <winnow/cxx20.hpp>

#pragma GCC visibility push(default)

namespace winnow {

/// How the elements of all ranks are combined.
enum class ReduceOp : std::uint8_t {
  sum,      ///< integers: modulo 2^bits
  average,  ///< the sum, then one multiplication by 1 / ranks; integers: one division, towards
            ///< zero, as ncclAvg
  minimum,  ///< floats: as in IEEE 754-2019: NaN if any is NaN, and -0 is below 0
  maximum,  ///< likewise
  product,  ///< integers: modulo 2^bits
};

}  // namespace winnow

#pragma GCC visibility pop
