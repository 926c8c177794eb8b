// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/elements.hpp>
#include <winnow/exec.hpp>
#include <winnow/reduce_op.hpp>

namespace winnow::kernels {

/// Throws UsageError for elements of 16 bits, and for the average, which is not made of pairs.
void expect_reducible(ElementType type, ReduceOp op);

/// into[i] = into[i] op from[i], as kernels/arithmetic/reduce.hpp has it. Equal sizes and types, no
/// overlap. Throws UsageError for what is not reducible.
void reduce(const Exec& exec, ReduceOp op, const Elements& into, const ConstElements& from);

/// Makes averages of the sums of `ranks` ranks. Throws UsageError for elements of 16 bits.
void average(const Exec& exec, const Elements& sums, int ranks);

}  // namespace winnow::kernels
