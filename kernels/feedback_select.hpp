// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <winnow/elements.hpp>
#include <winnow/exec.hpp>

#include "kernels/arithmetic/partition.hpp"
#include "kernels/arithmetic/precondition.hpp"
#include "kernels/arithmetic/side.hpp"

namespace winnow::kernels {

/// The state of a parameter's selection from step to step: a lower bound of |acc| under which
/// nothing is expected to be among the k largest. It chooses the work, never the result.
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

  /// Own ones of the parameter's first `count` elements.
  std::uint64_t size(std::uint64_t count) const {
    if (partition == nullptr) return 0;
    return partition->local_before(self, base + count) - partition->local_before(self, base);
  }
};

/// One parameter's elements and their residual: equal sizes, no overlap; below 2^32 elements, on a
/// device below 2^31. own.partition lies in host memory, whatever the place.
struct FeedbackSpans {
  Elements gradient;  ///< float32, bf16 or fp16; acc is computed from the widened elements
  std::span<float> residual;
  float decay = 1;
  OwnUnits own = {};
  Precondition precondition =
      {};  ///< of the gradient, in the same pass; not again if it is repeated
};

struct SelectResult {
  bool finite;               ///< no acc was NaN or infinite
  std::uint64_t candidates;  ///< elements that reached the bound, 2k + 4096 for more; k <=
                             ///< candidates when it was good (reference: all finite elements)
  std::uint32_t passes;      ///< 1, or 2 where the bound was too high and the pass was repeated
  std::uint64_t listed = 0;  ///< own elements that reach own.bound; the list is only good if all of
                             ///< them found room
  float listed_by = 0;       ///< the bound of own elements that the pass went by
  bool overflow = false;     ///< select_sums: terms name more than `touched` has room for; nothing
                             ///< of this is right, and the message of the sums is poisoned
};

/// The gradient's content after a pass.
enum class GradientAfter : std::uint8_t {
  zero,
  accumulated,  ///< what ordered_sum can write its sums over (OrderedSumJob::after_accumulate): on
                ///< the host zeros; on a device, where zeros cost 4 bytes an element more,
                ///< anything, but NaN where acc is not finite
};

/// The input of feedback_select for one parameter, in the memory of exec.place.
struct FeedbackSelectJob {
  FeedbackSpans spans = {};
  std::uint32_t base = 0;               ///< added to each index: position of the first element
  std::span<std::uint32_t> index = {};  ///< k elements each, 0 <= k <= elements that are not own
  std::span<float> value = {};
  SelectBound* state = nullptr;  ///< carried from step to step
  SelectResult* result = nullptr;
  /// If not null, read instead of spans.own.bound when the work runs: the bound of select_sums'
  /// state, say. Any number is good: one of 0 lists all that there is room for.
  const float* own_bound = nullptr;
  GradientAfter gradient_after = GradientAfter::zero;
  Side side = Side::both;  ///< one side only where no job of the call has own units
};

/// Error feedback and exact top-k in one fused pass over memory:
///   acc = gradient + decay * residual   (two roundings, no fused multiply-add), of a gradient that
///     spans.precondition has replaced
///   index, value = the k elements largest in |acc|, ascending by index; ties to the lowest index
///   residual = 0 where selected, acc elsewhere;  gradient = gradient_after
/// Own units are never selected. Where acc is not finite it is never selected unless fewer than k
/// finite ones exist, the old residual stays, and result->finite is false; the caller then puts the
/// message back (fewer than k finite: the rest of the message has value 0 at the lowest unselected
/// indices). Elements that are not on job.side are not selected either: acc stays in the residual,
/// and where fewer than k are left the message is filled in the same way. Bit-identical for every
/// place, target and number of threads. On a device all of it is enqueued, and a CUDA graph can
/// capture it: what is in the job itself by value, so a job with own units wants own_bound. Throws
/// UsageError for wrong sizes.
///
/// The jobs share no memory. The threads of the host do a long one together, and short ones side by
/// side; a device does all of them, 1024 at a time, in the launches of one and those that take the
/// list there.
void feedback_select(const Exec& exec, std::span<const FeedbackSelectJob> jobs);

/// The most scratch that feedback_select takes, in bytes, for jobs of these sizes; nothing else in
/// them is read. Reference: 8 an element of the longest; cpu: 8 an element at most, or
/// threads * (2k + 4096) * 8, and 8 for each place of own.index and thread, where each of several
/// threads may do a short job; a device: 16 (k + 2048) for each job, of 1024 at a time. And a few.
std::size_t feedback_select_scratch(const Exec& exec, std::span<const FeedbackSelectJob> jobs);

/// The input of feedback_threshold, likewise.
struct FeedbackThresholdJob {
  FeedbackSpans spans = {};
  std::uint32_t base = 0;  ///< as in FeedbackSelectJob
  float bound = 0;         ///< above 0
  /// A list that parameters fill one after the other, with room behind *kept for all elements that
  /// are not own.
  std::span<std::uint32_t> index = {};
  std::span<float> value = {};
  std::uint64_t* kept = nullptr;  ///< entries of the list, which grow by what is selected
  SelectResult* result = nullptr;
  GradientAfter gradient_after = GradientAfter::zero;
};

/// That pass with a bound instead of k: all finite elements with |acc| >= bound,
/// result->candidates many, are selected, ascending, behind what the list has. Where the room does
/// not do the host refuses; a device leaves what finds none in the residual.
void feedback_threshold(const Exec& exec, const FeedbackThresholdJob& job);

/// The most scratch that it takes. Reference: 8 bytes an element; cpu: 8 for each of `listed` and
/// thread; a device: 16 for each 4096 elements. And a few.
std::size_t feedback_threshold_scratch(const Exec& exec, std::size_t count, std::size_t listed = 0);

}  // namespace winnow::kernels
