// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/elements.hpp>
#include <winnow/reduce_op.hpp>

namespace winnow::bench {

/// Elements of all ranks with a known result. Bell-shaped whole numbers with so few bits that every
/// sum is exact in any order; for products, 1, 2 or 3 with a sign, of which only one at a position
/// is not 1.
struct Problem {
  ElementType type = ElementType::float32;
  ReduceOp op = ReduceOp::sum;
  int ranks = 1;
  std::uint64_t seed = 0;
};

/// Writes the elements of one rank.
void fill(const Problem& problem, int rank, const Elements& elements);

/// Elements that stand in the whole result from `first` on.
struct Found {
  ConstElements elements;
  std::uint64_t first = 0;
};

/// How many elements differ from the exact result; averages of floats may differ by two units in
/// the last place.
std::uint64_t count_wrong(const Problem& problem, const Found& result);

/// L2 norm of (result + rest - exact) over that of exact, in double. `rest`, if any, is the sum of
/// the ranks' residuals there; for an average its share is taken. Gradient types only.
double relative_error(const Problem& problem, const Found& result, std::span<const double> rest);

}  // namespace winnow::bench
