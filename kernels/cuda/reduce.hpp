// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/elements.hpp>
#include <winnow/exec.hpp>
#include <winnow/reduce_op.hpp>

namespace winnow::kernels::cuda {

// The bodies of kernels::reduce and kernels::average for device memory, by 8 bytes where elements
// are aligned to them: enqueued on exec.stream, which must belong to the current device. They need
// no scratch, do not synchronise or allocate, so a CUDA graph can capture them. CudaError where a
// launch is refused, UsageError in a build without CUDA.

void reduce(const Exec& exec, ReduceOp op, const Elements& into, const ConstElements& from);
void average(const Exec& exec, const Elements& sums, int ranks);

// Floats in place to integers that a library reduces in their stead, where its own minimum of
// floats is not that of kernels::reduce, and back (reduce_arithmetic.hpp). For `op` minimum or
// maximum; on the device alone, else as above. UsageError for elements that are not float32 or
// float64.

/// Leaves uint32 or uint64 in the memory of the floats.
void to_ordered(const Exec& exec, const Elements& floats, ReduceOp op);
/// Of those integers, or of their minimum or maximum; `floats` as there.
void from_ordered(const Exec& exec, const Elements& floats);

}  // namespace winnow::kernels::cuda
