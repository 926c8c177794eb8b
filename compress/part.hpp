// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>
#include <winnow/elements.hpp>
#include <winnow/exec.hpp>

#include "compress/message.hpp"
#include "kernels/arithmetic/precondition.hpp"
#include "kernels/arithmetic/side.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/owned.hpp"
#include "kernels/select_sums.hpp"

namespace winnow::compress {

/// The bounds that the selections of a piece carry from step to step, in the memory of its
/// elements.
struct Bounds {
  kernels::SelectBound bound;
  kernels::SelectBound sum_bound;  ///< of the sums that this rank owns

  /// The bound of a selection from one side. Where there are sides nobody owns sums.
  kernels::SelectBound& bound_of(kernels::Side side) {
    return side == kernels::Side::negative ? sum_bound : bound;
  }
};

/// The state of a piece from step to step, beside its residual.
struct PieceState {
  Bounds* bounds = nullptr;  ///< not null once there is a residual
  std::uint32_t turn = 0;    ///< number of calls that chose supports: decides whose turn it is
  bool dirty = false;        ///< the residual may hold something
  /// If not 0, only in the shards that this rank serves of the bucket with this plan.
  std::uint64_t owned_by_plan = 0;

  /// The residual may hold something, anywhere.
  void mark_dirty() {
    dirty = true;
    owned_by_plan = 0;
  }
};

/// Allocates bounds, with nothing learnt yet, and points the pieces to them.
kernels::PlaceArray<Bounds> make_bounds(const Exec& exec, std::span<PieceState> pieces);

/// The state of one parameter on this rank, from step to step.
struct ParameterState {
  std::uint64_t count = 0;
  kernels::PlaceArray<float> residual;            ///< allocated when first needed
  const MemorySource* residual_memory = nullptr;  ///< null: where the elements lie
  std::uint64_t calls = 0;                        ///< in which it was summed
  kernels::PlaceArray<float> moment;              ///< of its gradients; see Preconditioner
  std::uint64_t counted = 0;                      ///< how many gradients that counts
  kernels::PlaceArray<Bounds> bounds;             ///< of its pieces; where the elements lie
  std::uint64_t piece_length = 0;  ///< elements of each piece but the last; the first plan fixes
                                   ///< it, for what is known of a piece outlives a plan
  std::vector<PieceState> pieces;
  std::string name;  ///< as a first call of a bucket gave it, for the text of errors
};

/// A parameter in error messages: "parameter 7", or "parameter 'layer1.weight' (id 7)".
std::string label_of(std::uint64_t id, std::string_view name);

/// A stretch of one parameter inside a part: views.
struct Piece {
  Elements elements;
  ElementType rounds_to = ElementType::float32;  ///< what the caller's elements are: the sums will
                                                 ///< be rounded to it, where `elements` are not
  ParameterState* parameter = nullptr;
  PieceState* state = nullptr;
  std::uint64_t offset = 0;     ///< place in the parameter of elements[0]
  std::uint32_t base = 0;       ///< position in the part of elements[0], a multiple of 64
  std::uint32_t k = 0;          ///< elements to keep of those that other ranks sum
  std::uint64_t own_begin = 0;  ///< local number of the first element that this rank sums
  std::uint64_t own_count = 0;  ///< how many it sums
  std::uint32_t own_k = 0;      ///< elements to keep of the sums
  /// The change that the call's first pass makes to the elements before error feedback, if nothing
  /// has made it yet.
  kernels::Precondition precondition = {};

  /// Empty where the parameter has none yet.
  std::span<float> residual() const {
    return parameter->residual.empty()
               ? std::span<float>()
               : parameter->residual.span().subspan(offset, elements.size());
  }
  /// Whether something waits in it.
  bool has_residual() const { return state->dirty && !residual().empty(); }
};

/// The longest message that the sum of `ranks` messages can be.
struct PartialShape {
  int ranks;
  std::uint64_t most_k;
  Shape longest;
};

/// The shapes of a part's messages, by owner; of one that is for all, one.
struct PartShapes {
  /// Shapes of what ranks keep of their gradients: the longest where the gradient decides how many
  /// elements an owner gets.
  std::vector<Shape> gradients;
  std::vector<Shape> sums;  ///< of what owners keep of their sums; if variable_k, the longest
  // Where ranks agree on supports before values travel: the support, and the values at it.
  std::vector<Shape> supports, values;
  std::vector<PartialShape> partials;  ///< where ranks exchange sums of several gradients
};

/// The most scratch, in bytes, of passes over a part and of the work between them and messages: see
/// plan_scratch.
struct PassScratch {
  std::size_t gradients = 0;  ///< of the pass that makes acc
  std::size_t sums = 0;       ///< of the selection among sums
};

/// The elements that one call sends in one message, or in one to each owner: below 2^32 positions.
/// Pieces lie one after another, each from a multiple of 64 on; positions between them are gaps.
struct Part {
  static constexpr std::uint32_t kNobody = 0xffffffff;

  std::vector<Piece> pieces;
  std::uint64_t count = 0;             ///< positions
  kernels::Partition partition{1, 0};  ///< one owner: a message is for all ranks
  std::uint32_t self = kNobody;        ///< the owner that this rank is
  // Numbers of elements kept; if variable_k, every position counts.
  std::uint64_t k = 0;                       ///< of all pieces
  std::uint64_t most_k = 0;                  ///< the most that k is on any rank
  std::vector<std::uint64_t> owner_k = {};   ///< what each owner keeps of its sums
  std::vector<std::uint64_t> most_for = {};  ///< the most that any rank can send each owner
  PartShapes shapes = {};
  PassScratch scratch = {};

  /// The most positions of a piece that any one owner has.
  std::uint64_t most_owned(const Piece& piece) const {
    constexpr std::uint64_t kUnit = kernels::Partition::kUnit;
    const std::uint64_t owners = partition.owners(), size = piece.elements.size();
    const std::uint64_t groups = ((size + kUnit - 1) / kUnit + owners - 2) / owners + 1;
    return std::min(groups * kUnit, size);
  }
  /// Returns the entry of `shapes.partials` for that number of ranks, which a plan has made.
  const PartialShape& partial_of(int ranks) const {
    return *std::ranges::find(shapes.partials, ranks, &PartialShape::ranks);
  }
  /// The side of a selection that takes one: the other one in the next call. The first parameter
  /// decides, for values of all of them share a scale.
  kernels::Side side_of_call() const {
    const bool odd = !pieces.empty() && pieces.front().parameter->calls % 2 != 0;
    return odd ? kernels::Side::positive : kernels::Side::negative;
  }
  /// `header` for a message of `owner`'s positions; its k is left as it is.
  Header of_owner(Header header, std::uint32_t owner) const {
    header.owner = owner;
    header.count = partition.local_count(owner);
    return header;
  }
};

/// acc of this rank's own positions, at a support that all ranks know: it is nowhere else.
struct OwnedAcc {
  std::span<const std::uint32_t> index;  ///< where; none if acc is of every position
  std::span<float> acc;
  std::span<std::uint32_t> not_finite;  ///< two words: not 0 if an acc, or a sum, is not finite
};

/// The lists of a selection from sums, while acc is in the residuals.
struct OwnedLists {
  std::span<kernels::OwnedSums> listed;  ///< by piece: what encode's pass listed
  /// Sums that are not acc. A piece has room for OwnedSums::most of them, and says how many it has.
  kernels::SparseView touched = {};
  std::span<std::uint64_t> touched_counts = {};
  kernels::Placed<kernels::ListRun> touched_runs = {};
};

/// The data that a rank needs to end the call: views of scratch. Local numbers are of Part::self.
struct Owned {
  kernels::Placed<kernels::PlacedSpan> residuals = {}, elements = {};  ///< of the pieces

  /// Results of selecting passes: encode's, by piece, and behind them those of encode_sums.
  std::span<kernels::SelectResult> results = {};
  /// Empty if this rank sums nothing, or if it chooses a support before it does.
  std::variant<std::monostate, OwnedAcc, OwnedLists> sums = {};
  /// At the positions of the message of sums: what its coding misses of them.
  kernels::Term left = {};
};

/// The elements that a selection has taken out of a gradient and its residual, before they are in
/// messages: views of scratch.
struct Chosen {
  kernels::SparseView list = {};        ///< by position of the part
  std::span<std::uint32_t> local = {};  ///< the same by owner: entries [begin[o],
  std::span<float> value = {};          ///< begin[o + 1]) are for owner o
  std::span<std::uint32_t> device_begin =
      {};                               ///< in the memory of exec.place, if there are several
  std::span<std::uint32_t> begin = {};  ///< the host's
};

/// The values that a rank has taken out of its residuals at the support of `owner`: views of
/// scratch.
struct Taken {
  std::uint32_t owner = 0;
  std::span<const std::uint32_t> index = {};  ///< local numbers; none where the support is all
                                              ///< positions of the owner
  std::span<float> value = {};                ///< acc there, by place in the support
};

/// The places of the pieces' elements, as kernels take them: scratch.
kernels::Placed<kernels::PlacedSpan> place_elements(const Exec& exec, const Part& part);
/// Places Owned::residuals and Owned::elements in one store.
void place_pieces(const Exec& exec, const Part& part, Owned& owned);

/// Allocates the residual and the bounds of a piece's parameter, if it has none.
void make_residual(const Exec& exec, ParameterState& parameter);

/// Keeps pieces that are not sent after all: residual = acc of what its precondition makes of the
/// elements, if acc is finite, else it stays. Allocates the residual if there is none. The elements
/// stay.
void keep(const Exec& exec, std::span<const Piece> pieces, float decay);

// The functions below take no memory, so they cannot fail for want of it. owned.residuals is set.

/// residual += the message to `owner`: undoes encode.
void restore(const Exec& exec, const Part& part, const Owned& owned, std::uint32_t owner,
             const MessageView& message);

/// residual += what was chosen: undoes choose.
void restore(const Exec& exec, const Part& part, const Owned& owned, const Chosen& chosen);

/// residual = acc, if finite, at the positions of Part::self: undoes encode.
void restore_own(const Exec& exec, const Part& part, const Owned& owned);

/// The job that takes the residuals at taken.index, or puts them back.
kernels::OwnedJob taken_job(const Part& part, const Owned& owned, const Taken& taken);

/// The residuals at taken.index = taken.value, where it is finite: undoes a take.
void put(const Exec& exec, const Part& part, const Owned& owned, const Taken& taken);

/// residual = what is left of the sums, at the positions of Part::self.
void store_own_remainder(const Exec& exec, const Part& part, const Owned& owned);
inline void store_remainder(const Exec& exec, const Part& part, const Owned& owned) {
  if (part.self != Part::kNobody) store_own_remainder(exec, part, owned);
}

/// Zeros at local numbers of Part::self that belong to no piece.
void clear_own_gaps(const Exec& exec, const Part& part, std::span<float> local);

}  // namespace winnow::compress
