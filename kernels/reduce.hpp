// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/elements.hpp>
#include <winnow/exec.hpp>
#include <winnow/reduce_op.hpp>

namespace winnow::kernels {

/// Throws UsageError for elements of 16 bits, and for the average, which is not made of pairs.
[[gnu::visibility("default")]] void expect_reducible(ElementType type, ReduceOp op);

/// into[i] = into[i] op from[i], as kernels/arithmetic/reduce.hpp has it. Equal sizes and types, no
/// overlap. Throws UsageError for what is not reducible.
[[gnu::visibility("default")]] void reduce(const Exec& exec, ReduceOp op, const Elements& into,
                                           const ConstElements& from);

/// Makes averages of the sums of `ranks` ranks. Throws UsageError for elements of 16 bits.
void average(const Exec& exec, const Elements& sums, int ranks);

/// Integers stand for floats, in their memory (uint32 for float32, uint64 for float64), so that the
/// minimum and maximum of the integers are those of the floats as reduce has them, in any order and
/// by any library. Throws UsageError for other elements.
void to_ordered(const Exec& exec, const Elements& floats, ReduceOp op);
/// Turns such integers, or their minimum or maximum, back.
void from_ordered(const Exec& exec, const Elements& floats);

}  // namespace winnow::kernels
