// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <winnow/elements.hpp>
#include <winnow/mpi.hpp>
#include <winnow/reduce_op.hpp>

namespace winnow::comm {

/// MPI's names for what is reduced and how. MPI's own operations serve for sums and products of
/// floats alone. Of minimum and maximum MPI does not say which of two zeros or NaNs they take, so
/// ranks could end with different bits; and Open MPI 4.1 saturates sums of 8-bit integers where the
/// processor has AVX, and wraps them elsewhere, in one call.
class MpiReductions {
 public:
  /// Local. Throws CommError.
  MpiReductions();
  /// Leaves to MPI_Finalize what was not let go.
  ~MpiReductions() = default;
  MpiReductions(const MpiReductions&) = delete;
  MpiReductions& operator=(const MpiReductions&) = delete;

  /// Of elements that are not of 16 bits; kernels::expect_reducible says so.
  static MPI_Datatype type(ElementType type);
  /// Whether op() is one of MPI's own, which know where elements lie.
  static bool is_native(ElementType type, ReduceOp op);
  /// Not the average.
  MPI_Op op(ElementType type, ReduceOp op) const;
  /// Frees the operations; while MPI is up.
  void let_go() noexcept;

 private:
  std::array<MPI_Op, 5> own_;  // by number of the ReduceOp; null for the average
};

}  // namespace winnow::comm
