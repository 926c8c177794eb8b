// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/feedback_select.hpp"
#include "kernels/terms.hpp"

namespace winnow::kernels {

/// The units of one parameter that this rank sums. Local numbers below are of own.partition.
struct OwnedSums {
  OwnUnits own = {};                     ///< with the list that feedback_select left; its `bound`
                                         ///< is not looked at
  std::span<const float> residual = {};  ///< of the parameter: acc at own elements
  std::uint64_t begin = 0;               ///< local number of its first own element
  std::uint64_t count = 0;               ///< own elements
  std::uint64_t most = 0;                ///< that terms may ever name, for scratch of a fixed size
};

/// Lists of sums, ascending by local number.
struct SumLists {
  std::span<std::uint32_t> index = {};    ///< of the sums that are selected
  std::span<float> value = {};            ///< they
  std::span<std::uint32_t> touched = {};  ///< room for an element for each entry of terms here, on
                                          ///< a device OwnedSums::most; or, if that is less, count
  std::span<float> sum = {};              ///< and for their sums
};

/// The sums of one parameter.
struct SelectSumsJob {
  OwnedSums owned = {};
  const SelectResult* accumulated = nullptr;  ///< where feedback_select said how many it listed,
                                              ///< and by which bound
  PlacedTerms terms = {};  ///< lists by local number, one a rank; own.self's says nothing
  SumLists out = {};       ///< index and value have k places
  std::uint64_t* touched_count = nullptr;  ///< becomes how many of out.touched are written
  SelectBound* state = nullptr;            ///< carried from step to step
  SelectResult* result = nullptr;
};

/// Adds what other ranks sent to this rank's own elements and selects the k largest sums, ties to
/// the lowest local number, 1 <= k <= count:
///   sum[i] = ((0 + terms[0][i]) + terms[1][i]) + ...   with acc in the place of terms[self]
/// of those terms that name i; sum[i] = acc where none does. Touches no memory of elements that no
/// term names while the bound of *accumulated was good: all that matters was listed by the pass
/// that made acc; else reads all of it. The residual stays. Where a sum is not finite
/// result->finite is false, index names the first k elements, value is 0 and the bound stays; so
/// does the bound where terms name more than out.touched has room for (SelectResult::overflow).
/// Bit-identical for every place and number of threads, while candidates and passes tell of the
/// work done.
///
/// The jobs share no memory but terms. The host does one after the other; a device does all of
/// them, 1024 at a time, in the launches of one and those that take the list there.
void select_sums(const Exec& exec, std::span<const SelectSumsJob> jobs);

/// Bytes of scratch that select_sums takes in the memory of exec.place, at most, in any step, for
/// jobs of these sizes with placed terms; nothing else in them is read.
std::size_t select_sums_scratch(const Exec& exec, std::span<const SelectSumsJob> jobs);

struct KeepSumsJob {
  OwnedSums owned = {};                       ///< own.index has room for all own elements
  const SelectResult* accumulated = nullptr;  ///< of feedback_threshold: all that reach the bound,
                                              ///< which is above 0, are listed
  PlacedTerms terms = {};                     ///< as in SelectSumsJob
  /// index and value are a list that parameters fill one after the other, with room for all own
  /// elements behind what it has.
  SumLists out = {};
  std::uint64_t* kept = nullptr;           ///< entries of the list, which grow by what is kept
  std::uint64_t* touched_count = nullptr;  ///< as in SelectSumsJob
  SelectResult* result = nullptr;
};

/// The sums of select_sums, and in the place of the k largest all with |sum| >=
/// accumulated->listed_by, result->candidates many, behind what the list has; none if a sum is not
/// finite. Scratch as one job of select_sums has it, for k = 0.
void keep_sums(const Exec& exec, const KeepSumsJob& job);

}  // namespace winnow::kernels
