// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/transport.hpp>

namespace winnow::comm {

/// own = op(own, arrived), by kernels::reduce.
void reduce_block(Transport& transport, const Exec& exec, ReduceOp op, const Elements& own,
                  const Elements& arrived);

/// What one pass round the ring moves, and how what arrives becomes part of it.
struct Ring {
  Transport& transport;
  const Exec& exec;
  Elements elements;
  ReduceOp op;
  int first_step, last_step;  ///< from 0 to P - 1: reduce-scatter; from P - 1 to 2P - 2: all-gather
  Deadline deadline;
  void (*combine)(Transport&, const Exec&, ReduceOp, const Elements&,
                  const Elements&) = reduce_block;
};

/// Moves bytes only: for the all-gather half.
void run_ring(const Ring& ring);
/// Also reduces: checks that it can. Throws UsageError, or CommError where ranks differ in count.
void reduce_ring(const Ring& ring);

}  // namespace winnow::comm
