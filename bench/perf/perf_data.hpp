// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/elements.hpp>
#include <winnow/reduce_op.hpp>

namespace winnow::bench {

/// Elements of all ranks whose reduction is known. Bell-shaped whole numbers, so few bits of them
/// that every sum is exact, in any order; where they are multiplied, 1, 2 or 3 with a sign, and but
/// one at a position that is not 1.
struct Problem {
  ElementType type = ElementType::float32;
  ReduceOp op = ReduceOp::sum;
  int ranks = 1;
  std::uint64_t seed = 0;
};

/// Writes the elements of one rank.
void fill(const Problem& problem, int rank, const Elements& elements);

/// How many elements of `result` differ from the exact one; of averages of floats, by more than two
/// units in the last place.
std::uint64_t count_wrong(const Problem& problem, const ConstElements& result);

/// L2 norm of (result + rest - exact) over that of exact, in double. `rest`, if any, is what the
/// ranks kept back, summed; of an average its share is taken. Types of gradients only.
double relative_error(const Problem& problem, const ConstElements& result,
                      std::span<const double> rest);

}  // namespace winnow::bench
