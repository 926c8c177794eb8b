// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <winnow/elements.hpp>
#include <winnow/mpi.hpp>
#include <winnow/reduce_op.hpp>

namespace winnow::comm {

/// MPI's types and operations. MPI's own operations serve only for sums and products of floats. For
/// minimum and maximum MPI does not say which of two zeros or NaNs wins, so ranks could end with
/// different bits. And for sums of 8-bit integers Open MPI 4.1 may saturate some elements of a call
/// and wrap others if the processor has AVX.
class MpiReductions {
 public:
  /// Local. Throws CommError.
  MpiReductions();
  /// Leaves to MPI_Finalize what was not let go.
  ~MpiReductions() = default;
  MpiReductions(const MpiReductions&) = delete;
  MpiReductions& operator=(const MpiReductions&) = delete;

  /// Not for 16-bit elements; kernels::expect_reducible refuses those.
  static MPI_Datatype type(ElementType type);
  /// Whether op() is one of MPI's own, which can handle device memory.
  static bool is_native(ElementType type, ReduceOp op);
  /// Not for the average.
  MPI_Op op(ElementType type, ReduceOp op) const;
  /// Frees the operations; call it while MPI is up.
  void let_go() noexcept;

 private:
  std::array<MPI_Op, 5> own_;  // by number of the ReduceOp; null for the average
};

}  // namespace winnow::comm
