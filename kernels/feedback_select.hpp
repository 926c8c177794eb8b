// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <winnow/exec.hpp>

#include "kernels/arithmetic/partition.hpp"

namespace winnow::kernels {

/// What a parameter carries from one step's selection to the next: a lower bound of |acc| under
/// which nothing is expected to be among the k largest. It chooses the work, never the result.
/// All zero before the first step.
struct SelectBound {
  float bound = 0;      ///< candidates have |acc| >= bound
  float margin = 0;     ///< how far below the last step's k-th largest the bound lies, adaptive;
                        ///< negative while the k-th largest grows from step to step
  std::uint32_t k = 0;  ///< the k it was learnt for; 0: nothing learnt yet, sample first
};

/// Units of a parameter that do not compete, because this rank is their owner, and room for a list
/// of those of their elements that may be among the largest sums (select_sums.hpp).
struct OwnUnits {
  const Partition* partition = nullptr;  ///< null: there are none
  std::uint32_t self = 0;                ///< the owner
  std::uint64_t base = 0;                ///< position of the parameter's first element, a
                                         ///< multiple of Partition::kUnit
  float bound = std::numeric_limits<float>::infinity();  ///< listed where |acc| >= bound
  std::span<std::uint32_t> index = {};                   ///< local number
  std::span<float> value = {};                           ///< acc
};

/// One parameter's elements and their residual: equal sizes, below 2^32 elements, no overlap.
struct FeedbackSpans {
  std::span<float> gradient;
  std::span<float> residual;
  float decay = 1;
  OwnUnits own = {};
};

struct SelectResult {
  bool finite;               ///< no acc was NaN or infinite
  std::uint64_t candidates;  ///< elements that reached the bound, 2k + 4096 for more; k <=
                             ///< candidates when it was good (reference: all finite elements)
  std::uint32_t passes;      ///< 1, or 2 where the bound was too high and the pass was repeated
  std::uint64_t listed = 0;  ///< own elements that reach own.bound; the list is only good where all
                             ///< of them found room
  float listed_by = 0;       ///< own.bound, or what stood in its place when the pass ran
  bool overflow = false;     ///< select_sums on a device: terms name more than `touched` has room
                             ///< for; nothing of this is right, the call is repeated dense
};

/// Error feedback and exact top-k in one fused pass over memory:
///   acc = gradient + decay * residual   (two roundings, no fused multiply-add)
///   index, value = the k elements largest in |acc|, ascending by index; ties to the lowest index
///   residual = 0 where selected, acc elsewhere;  gradient = 0 everywhere
/// Own units are never selected. index and value have k elements, 0 <= k <= elements that are not
/// own. Where acc is not finite it is never selected unless fewer than k finite ones exist, the old
/// residual stays, and finite is false; the caller then puts the message back (fewer than k finite:
/// the rest of the message has value 0 at the lowest unselected indices). exec.workspace required:
/// 8 bytes an element at most, about threads * (2k + 4096) * 8 otherwise. Bit-identical for every
/// place, target and number of threads.
SelectResult feedback_select(const Exec& exec, const FeedbackSpans& spans, SelectBound& state,
                             std::span<std::uint32_t> index, std::span<float> value);

/// The same pass with a bound in the place of k: all finite elements with |acc| >= bound, bound >
/// 0, are selected, `candidates` many, ascending, to the front of index and value, which have as
/// many places as there are elements. exec.workspace required: 8 bytes for each place of own.index
/// and thread (reference: 8 an element).
SelectResult feedback_threshold(const Exec& exec, const FeedbackSpans& spans, float bound,
                                std::span<std::uint32_t> index, std::span<float> value);

/// Moves the k = index.size() elements of `values` largest in magnitude to index and value, as
/// feedback_select does, leaving zeros. All must be finite.
void select(const Exec& exec, std::span<float> values, SelectBound& state,
            std::span<std::uint32_t> index, std::span<float> value);

}  // namespace winnow::kernels
