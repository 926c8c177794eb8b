// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <winnow/transport.hpp>

namespace winnow::comm {

/// own = op(own, arrived), by kernels::reduce.
void reduce_block(Transport& transport, const Exec& exec, ReduceOp op, const Elements& own,
                  const Elements& arrived);

/// One pass round the ring, and how what arrives is combined.
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

/// Only moves bytes: for the all-gather half.
void run_ring(const Ring& ring);
/// Also reduces, after checking that it can. Throws UsageError, or CommError if ranks differ in
/// count.
void reduce_ring(const Ring& ring);

}  // namespace winnow::comm
