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

}  // namespace winnow::kernels::cuda
