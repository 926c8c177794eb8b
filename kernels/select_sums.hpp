// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/add_to.hpp"
#include "kernels/feedback_select.hpp"

namespace winnow::kernels {

/// The units of one parameter that this rank sums. Local numbers below are of own.partition.
struct OwnedSums {
  OwnUnits own;                     ///< as feedback_select left it
  std::uint64_t listed = 0;         ///< what it said of them
  std::span<const float> residual;  ///< of the parameter: acc, where own
  std::uint64_t begin = 0;          ///< local number of its first own element
  std::uint64_t count = 0;          ///< own elements
  std::uint64_t most = 0;           ///< that terms may ever name, for scratch of a fixed size
};

/// Lists of sums, ascending by local number.
struct SumLists {
  std::span<std::uint32_t> index;    ///< of the k largest
  std::span<float> value;            ///< they
  std::span<std::uint32_t> touched;  ///< room for all elements that some term names; becomes they
  std::span<float> sum;              ///< and their sums
};

/// Adds what other ranks sent to this rank's own elements and selects the k = index.size() largest
/// sums, ties to the lowest local number, 1 <= k <= count:
///   sum[i] = ((0 + terms[0][i]) + terms[1][i]) + ...   with acc in the place of terms[self]
/// of those terms that name i; sum[i] = acc where none does. terms are lists by local number, one a
/// rank. Touches no memory of elements that no term names while own.bound, from `state`, was good:
/// all that matters was listed by the pass that made acc; else reads all of it. The residual stays.
/// Returns finite = false where a sum is not finite; index then names the first k elements, value
/// is 0. exec.workspace required: 8 bytes for each place of own.index and of `most`, 4 * count
/// besides in a step whose bound was not good. Bit-identical for every place and number of threads.
SelectResult select_sums(const Exec& exec, const OwnedSums& owned,
                         std::span<const SparseView> terms, SelectBound& state, SumLists& out);

/// The same, but of all sums with |sum| >= own.bound, which is above 0: they go to the front of
/// index and value, which have room for all elements and become they; none where a sum is not
/// finite. own.index has had room for all that reach the bound.
SelectResult keep_sums(const Exec& exec, const OwnedSums& owned, std::span<const SparseView> terms,
                       SumLists& out);

}  // namespace winnow::kernels
